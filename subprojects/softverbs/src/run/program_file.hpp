#pragma once

#include <string>

namespace softverbs::run {

/// The path at which execvp() finds a program; empty: there is none.
[[nodiscard]] std::string find_program(const std::string& name);

/// Facts that a file tells about the program in it.
struct program_file {
  enum class kind { unreadable, script, dynamic, statically_linked, other_machine, unknown };

  kind is = kind::unknown;
  std::string interpreter;    ///< interpreter of a script; dynamic linker of a dynamic program
  bool gains_rights = false;  ///< set-user-ID, set-group-ID or capabilities: the loader is careful

  /// The reason why no library can be preloaded into the program; empty: one can.
  [[nodiscard]] std::string obstacle() const;
};

[[nodiscard]] program_file inspect(const std::string& path);

/// True if "/dev/infiniband" is in the file, as in one with a static librdmacm or libibverbs.
[[nodiscard]] bool names_devices(const std::string& path);

}  // namespace softverbs::run
