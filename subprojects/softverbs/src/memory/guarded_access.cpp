#include "memory/guarded_access.hpp"

#include <ucontext.h>

#if defined(__x86_64__) && !defined(SOFTVERBS_PORTABLE_ACCESS)

// Each function returns 1; a fault between `begin` and `end` continues at `fault`, which returns 0.
// The functions use no stack and only registers that a call may change. x86 keeps plain stores in
// order. The stores of one string instruction have no order among themselves, but precede later
// stores: so plain moves store the last bytes. Words are aligned where `to` is.
asm(R"(
  .pushsection .text
  .globl softverbs_access_begin, softverbs_access_end, softverbs_access_fault
  .globl softverbs_access_copy, softverbs_access_compare_swap, softverbs_access_fetch_add
  .hidden softverbs_access_begin, softverbs_access_end, softverbs_access_fault
  .hidden softverbs_access_copy, softverbs_access_compare_swap, softverbs_access_fetch_add
  .type softverbs_access_copy, @function
  .type softverbs_access_compare_swap, @function
  .type softverbs_access_fetch_add, @function
  .p2align 4
softverbs_access_begin:

softverbs_access_copy:              # rdi: to, rsi: from, rdx: bytes
  .cfi_startproc
  test $7, %dil
  jnz 5f
1:
  cmp $1024, %rdx                   # Shorter than this, plain moves win.
  jae 4f
  sub $32, %rdx
  jb 3f
  .p2align 4
2:
  mov (%rsi), %rax
  mov 8(%rsi), %rcx
  mov 16(%rsi), %r8
  mov 24(%rsi), %r9
  mov %rax, (%rdi)
  mov %rcx, 8(%rdi)
  mov %r8, 16(%rdi)
  mov %r9, 24(%rdi)
  add $32, %rsi
  add $32, %rdi
  sub $32, %rdx
  jae 2b
3:                                  # rdx is 32 too small
  test $16, %dl
  jz 6f
  mov (%rsi), %rax
  mov 8(%rsi), %rcx
  mov %rax, (%rdi)
  mov %rcx, 8(%rdi)
  add $16, %rsi
  add $16, %rdi
6:
  test $8, %dl
  jz 7f
  mov (%rsi), %rax
  mov %rax, (%rdi)
  add $8, %rsi
  add $8, %rdi
7:
  test $4, %dl
  jz 8f
  mov (%rsi), %eax
  mov %eax, (%rdi)
  add $4, %rsi
  add $4, %rdi
8:
  test $2, %dl
  jz 9f
  movzwl (%rsi), %eax
  mov %ax, (%rdi)
  add $2, %rsi
  add $2, %rdi
9:
  test $1, %dl
  jz 10f
  movzbl (%rsi), %eax
  mov %al, (%rdi)
10:
  mov $1, %eax
  ret
4:                                  # All but the last 64 to 71 bytes, by quadwords.
  lea -64(%rdx), %rcx
  shr $3, %rcx
  and $7, %edx
  add $64, %edx
  rep movsq
  sub $32, %rdx
  jmp 2b
5:                                  # Bytes up to the first aligned word of `to`.
  test %rdx, %rdx
  jz 10b
  movzbl (%rsi), %eax
  mov %al, (%rdi)
  inc %rsi
  inc %rdi
  dec %rdx
  test $7, %dil
  jnz 5b
  jmp 1b
  .cfi_endproc
  .size softverbs_access_copy, . - softverbs_access_copy

softverbs_access_compare_swap:      # rdi: address, rsi: compare, rdx: swap, rcx: previous
  .cfi_startproc
  mov %rsi, %rax
  lock cmpxchg %rdx, (%rdi)
  mov %rax, (%rcx)
  mov $1, %eax
  ret
  .cfi_endproc
  .size softverbs_access_compare_swap, . - softverbs_access_compare_swap

softverbs_access_fetch_add:         # rdi: address, rsi: add, rdx: previous
  .cfi_startproc
  lock xadd %rsi, (%rdi)
  mov %rsi, (%rdx)
  mov $1, %eax
  ret
  .cfi_endproc
  .size softverbs_access_fetch_add, . - softverbs_access_fetch_add

softverbs_access_end:
softverbs_access_fault:
  .cfi_startproc
  xor %eax, %eax
  ret
  .cfi_endproc
  .popsection
)");

extern "C" {
extern const char softverbs_access_begin[] __attribute__((visibility("hidden")));
extern const char softverbs_access_end[] __attribute__((visibility("hidden")));
extern const char softverbs_access_fault[] __attribute__((visibility("hidden")));
__attribute__((visibility("hidden"))) int softverbs_access_copy(void*, const void*,
                                                                std::size_t) noexcept;
__attribute__((visibility("hidden"))) int softverbs_access_compare_swap(void*, std::uint64_t,
                                                                        std::uint64_t,
                                                                        std::uint64_t*) noexcept;
__attribute__((visibility("hidden"))) int softverbs_access_fetch_add(void*, std::uint64_t,
                                                                     std::uint64_t*) noexcept;
}

namespace softverbs::guarded {

bool copy(void* to, const void* from, std::size_t bytes) noexcept {
  return softverbs_access_copy(to, from, bytes) != 0;
}

bool compare_swap(void* address, std::uint64_t compare, std::uint64_t swap,
                  std::uint64_t& previous) noexcept {
  return softverbs_access_compare_swap(address, compare, swap, &previous) != 0;
}

bool fetch_add(void* address, std::uint64_t add, std::uint64_t& previous) noexcept {
  return softverbs_access_fetch_add(address, add, &previous) != 0;
}

bool escape(void* ucontext) noexcept {
  greg_t& next = static_cast<ucontext_t*>(ucontext)->uc_mcontext.gregs[REG_RIP];
  if (next < reinterpret_cast<greg_t>(softverbs_access_begin) ||
      next >= reinterpret_cast<greg_t>(softverbs_access_end))
    return false;
  next = reinterpret_cast<greg_t>(softverbs_access_fault);
  return true;
}

}  // namespace softverbs::guarded

#else

#include <csetjmp>

#if defined(__clang__)
#define SOFTVERBS_UNSEEN __attribute__((disable_sanitizer_instrumentation, noinline))
#else
#define SOFTVERBS_UNSEEN __attribute__((no_sanitize("address", "thread", "undefined"), noinline))
#endif

namespace softverbs::guarded {
namespace {

/// The point at which this thread continues after a fault; null outside a guarded access.
thread_local sigjmp_buf* volatile recovery = nullptr;

template <typename Word>
SOFTVERBS_UNSEEN void move(volatile std::byte*& to, const volatile std::byte*& from,
                           std::size_t& bytes) noexcept {
  *reinterpret_cast<volatile Word*>(to) = *reinterpret_cast<const volatile Word*>(from);
  to += sizeof(Word);
  from += sizeof(Word);
  bytes -= sizeof(Word);
}

SOFTVERBS_UNSEEN void ascend(volatile std::byte* to, const volatile std::byte* from,
                             std::size_t bytes) noexcept {
  const auto odd = [](const volatile std::byte* p) {
    return reinterpret_cast<std::uintptr_t>(p) % 8;
  };
  while (bytes > 0 && odd(to) != 0) move<std::uint8_t>(to, from, bytes);
  if (odd(from) == 0)
    while (bytes >= 8) move<std::uint64_t>(to, from, bytes);
  while (bytes > 0) move<std::uint8_t>(to, from, bytes);
}

/// Runs `access`; false when it faulted.
template <typename Access>
SOFTVERBS_UNSEEN bool attempt(Access access) noexcept {
  sigjmp_buf point;
  if (sigsetjmp(point, 0) != 0) {
    recovery = nullptr;
    return false;
  }
  recovery = &point;
  access();
  recovery = nullptr;
  return true;
}

}  // namespace

bool copy(void* to, const void* from, std::size_t bytes) noexcept {
  return attempt([=]() SOFTVERBS_UNSEEN {
    ascend(static_cast<volatile std::byte*>(to), static_cast<const volatile std::byte*>(from),
           bytes);
  });
}

bool compare_swap(void* address, std::uint64_t compare, std::uint64_t swap,
                  std::uint64_t& previous) noexcept {
  return attempt([=, &previous]() SOFTVERBS_UNSEEN {
    std::uint64_t found = compare;
    __atomic_compare_exchange_n(static_cast<std::uint64_t*>(address), &found, swap, false,
                                __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    previous = found;
  });
}

bool fetch_add(void* address, std::uint64_t add, std::uint64_t& previous) noexcept {
  return attempt([=, &previous]() SOFTVERBS_UNSEEN {
    previous = __atomic_fetch_add(static_cast<std::uint64_t*>(address), add, __ATOMIC_SEQ_CST);
  });
}

bool escape(void*) noexcept {
  if (recovery != nullptr) siglongjmp(*recovery, 1);
  return false;
}

}  // namespace softverbs::guarded

#endif
