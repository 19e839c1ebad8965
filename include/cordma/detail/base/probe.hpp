#pragma once

// User-level static probes (USDT) of the provider `cordma`, for bpftrace, perf and SystemTap. A
// probe is a `nop` and a note in the program's file. The note names the place, and the registers or
// memory that contain the arguments there. docs/metrics.md lists the probes.

// NOLINTBEGIN(cppcoreguidelines-macro-usage): <sys/sdt.h> wants the probe's name as a word.
// clang-tidy would look through the macros, so it sees none.
#if defined(CORDMA_USDT) && __has_include(<sys/sdt.h>) && !defined(__clang_analyzer__)
#include <sys/sdt.h>
#if defined(_SDT_ASM_BODY) && defined(_SDT_ASM_ARGS) && defined(_SDT_ASM_BASE)
// The macro is DTRACE_PROBEn's, but `inline`: otherwise the compiler takes each line of the note
// for an instruction, and inlines less.
#define CORDMA_PROBE_N(name, n, operands)                                         \
  __asm__ __volatile__ __inline__(_SDT_ASM_BODY(cordma, name, _SDT_ASM_ARGS, (n)) \
                                      _SDT_ASM_BASE ::operands)
#define CORDMA_PROBE1(name, a) CORDMA_PROBE_N(name, 1, _SDT_ASM_OPERANDS_1(a))
#define CORDMA_PROBE3(name, a, b, c) CORDMA_PROBE_N(name, 3, _SDT_ASM_OPERANDS_3(a, b, c))
#define CORDMA_PROBE5(name, a, b, c, d, e) \
  CORDMA_PROBE_N(name, 5, _SDT_ASM_OPERANDS_5(a, b, c, d, e))
#else
#define CORDMA_PROBE1(name, a) DTRACE_PROBE1(cordma, name, a)
#define CORDMA_PROBE3(name, a, b, c) DTRACE_PROBE3(cordma, name, a, b, c)
#define CORDMA_PROBE5(name, a, b, c, d, e) DTRACE_PROBE5(cordma, name, a, b, c, d, e)
#endif
#else
// The arguments have no effects, so no code remains.
#define CORDMA_PROBE1(name, a) static_cast<void>(a)
#define CORDMA_PROBE3(name, a, b, c) \
  (static_cast<void>(a), static_cast<void>(b), static_cast<void>(c))
#define CORDMA_PROBE5(name, a, b, c, d, e) \
  (CORDMA_PROBE3(name, a, b, c), static_cast<void>(d), static_cast<void>(e))
#endif
// NOLINTEND(cppcoreguidelines-macro-usage)
