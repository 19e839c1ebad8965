#include "run/program_file.hpp"

#include "run/settings.hpp"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstring>
#include <sstream>
#include <string_view>

namespace softverbs::run {

namespace {

using elf_header = ElfW(Ehdr);
using elf_program_header = ElfW(Phdr);

/// The bytes of a regular file that can be read; else there are none. A program may be long, so
/// only the pages that are looked at are read.
class file_view {
 public:
  explicit file_view(const std::string& path) noexcept {
    struct stat is{};
    // A device or a pipe might have the open wait.
    if (::stat(path.c_str(), &is) != 0 || !S_ISREG(is.st_mode)) return;
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    can_read_ = true;
    if (is.st_size > 0) {
      const auto size = static_cast<std::size_t>(is.st_size);
      void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
      if (memory != MAP_FAILED) bytes_ = {static_cast<const char*>(memory), size};
    }
    ::close(fd);
  }
  file_view(const file_view&) = delete;
  file_view& operator=(const file_view&) = delete;
  ~file_view() {
    if (!bytes_.empty()) ::munmap(const_cast<char*>(bytes_.data()), bytes_.size());
  }

  [[nodiscard]] bool can_read() const noexcept { return can_read_; }
  [[nodiscard]] std::string_view bytes() const noexcept { return bytes_; }

 private:
  bool can_read_ = false;
  std::string_view bytes_;
};

/// A copy of what lies at `offset`; false if the file ends before.
template <class Value>
bool read_at(std::string_view file, std::uint64_t offset, Value& value) {
  if (offset > file.size() || file.size() - offset < sizeof value) return false;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return true;
}

/// True for a program of the machine architecture for which softverbs-run was built.
bool is_of_this_machine(const elf_header& header) {
  elf_header own{};
  return read_at(file_view{"/proc/self/exe"}.bytes(), 0, own) &&
         header.e_ident[EI_CLASS] == own.e_ident[EI_CLASS] &&
         header.e_ident[EI_DATA] == own.e_ident[EI_DATA] && header.e_machine == own.e_machine;
}

/// The path of the program's dynamic linker; empty if it names none.
std::string dynamic_linker_of(std::string_view file, const elf_header& header) {
  for (unsigned n = 0; n < header.e_phnum; ++n) {
    elf_program_header segment{};
    if (!read_at(file, header.e_phoff + std::uint64_t{n} * header.e_phentsize, segment)) break;
    if (segment.p_type != PT_INTERP || segment.p_offset >= file.size()) continue;
    const std::string_view text = file.substr(segment.p_offset, segment.p_filesz);
    return std::string{text.substr(0, text.find('\0'))};
  }
  return "";
}

/// The program of a script's first line; the one that env finds, if it is env.
std::string interpreter_of(std::string_view file) {
  std::istringstream line{std::string{file.substr(2, file.find('\n') - 2)}};
  std::string word;
  line >> word;
  if (!word.ends_with("/env")) return word;
  while (line >> word && word.starts_with('-')) {
  }
  return find_program(word);
}

void examine(std::string_view file, program_file& found) {
  using kind = program_file::kind;
  elf_header header{};
  if (file.starts_with("#!")) {
    found.is = kind::script;
    found.interpreter = interpreter_of(file);
  } else if (!file.starts_with(ELFMAG) || !read_at(file, 0, header)) {
    found.is = kind::unknown;
  } else if (!is_of_this_machine(header)) {
    found.is = kind::other_machine;
  } else {
    found.interpreter = dynamic_linker_of(file, header);
    found.is = found.interpreter.empty() ? kind::statically_linked : kind::dynamic;
  }
}

bool gains_rights(const std::string& path) {
  struct stat is{};
  if (::stat(path.c_str(), &is) != 0) return false;
  return ((is.st_mode & S_ISUID) != 0 && is.st_uid != ::getuid()) ||
         ((is.st_mode & S_ISGID) != 0 && is.st_gid != ::getgid()) ||
         (::getuid() != 0 && ::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0);
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return ::access(name.c_str(), F_OK) == 0 ? name : "";
  std::istringstream folders{environment("PATH")};
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string path = (folder.empty() ? "." : folder) + "/" + name;
    struct stat is{};
    if (::stat(path.c_str(), &is) == 0 && S_ISREG(is.st_mode) && ::access(path.c_str(), X_OK) == 0)
      return path;
  }
  return "";
}

program_file inspect(const std::string& path) {
  program_file found;
  found.gains_rights = gains_rights(path);
  const file_view file{path};
  if (file.can_read())
    examine(file.bytes(), found);
  else
    found.is = program_file::kind::unreadable;
  return found;
}

bool names_devices(const std::string& path) {
  return file_view{path}.bytes().find("/dev/infiniband") != std::string_view::npos;
}

std::string program_file::obstacle() const {
  if (gains_rights)
    return "gains rights when it starts (set-user-ID, set-group-ID or capabilities), so that the "
           "dynamic linker preloads nothing";
  if (is == kind::statically_linked)
    return "is linked statically, so that nothing can be preloaded";
  if (is == kind::other_machine)
    return "is for another machine or word size than softverbs' libraries";
  return "";
}

}  // namespace softverbs::run
