#include "symbol_names.hpp"

#include <cordma/base/unique_fd.hpp>

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>

namespace cordma::sim::detail {
namespace {

/// The program's file, in memory.
class program_file {
 public:
  program_file() noexcept {
    const unique_fd file{::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
    struct stat about{};
    if (file.get() < 0 || ::fstat(file.get(), &about) != 0) return;
    void* const at =
        ::mmap(nullptr, std::size_t(about.st_size), PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (at != MAP_FAILED) bytes_ = {static_cast<const std::byte*>(at), std::size_t(about.st_size)};
  }
  program_file(const program_file&) = delete;
  ~program_file() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }

  /// Returns the function that has this offset from where the program is loaded; empty: none.
  [[nodiscard]] std::string_view function_at(std::uintptr_t offset) const noexcept {
    if (bytes_.empty()) return {};
    const auto& head = *at<ElfW(Ehdr)>(0);
    const std::span sections{at<ElfW(Shdr)>(head.e_shoff), head.e_shnum};
    for (const ElfW(Shdr) & one : sections) {
      if (one.sh_type != SHT_SYMTAB) continue;
      const char* const names = at<char>(sections[one.sh_link].sh_offset);
      for (const ElfW(Sym) & s :
           std::span{at<ElfW(Sym)>(one.sh_offset), one.sh_size / sizeof(ElfW(Sym))})
        if (ELF64_ST_TYPE(s.st_info) == STT_FUNC && s.st_value <= offset &&
            offset < s.st_value + s.st_size)
          return names + s.st_name;
    }
    return {};
  }

 private:
  template <class T>
  [[nodiscard]] const T* at(std::size_t offset) const noexcept {
    return reinterpret_cast<const T*>(bytes_.data() + offset);
  }
  std::span<const std::byte> bytes_;
};

/// Returns true for an address of the program itself, and not of a library.
bool is_of_program(const Dl_info& info) noexcept {
  Dl_info own;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel gives the address as a number.
  return ::dladdr(reinterpret_cast<const void*>(::getauxval(AT_ENTRY)), &own) != 0 &&
         own.dli_fbase == info.dli_fbase;
}

}  // namespace

std::string symbol_name::text() const {
  if (function.empty()) {
    std::array<char, 32> number;
    std::snprintf(number.data(), number.size(), "+0x%zx", offset);
    return file + number.data();
  }
  const std::unique_ptr<char, void (*)(void*)> plain{
      abi::__cxa_demangle(function.c_str(), nullptr, nullptr, nullptr), &std::free};
  return plain != nullptr ? plain.get() : function;
}

symbol_name symbol_of(const void* address) {
  symbol_name made;
  Dl_info info;
  if (::dladdr(address, &info) == 0) return made;
  const std::string_view path{info.dli_fname};
  made.file = path.substr(path.rfind('/') + 1);
  made.offset =
      reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(info.dli_fbase);
  if (is_of_program(info)) made.function = program_file{}.function_at(made.offset);
  if (made.function.empty() && info.dli_sname != nullptr) made.function = info.dli_sname;
  return made;
}

}  // namespace cordma::sim::detail
