#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace doctor {

/// The files by which the kernel describes a machine: /sys, /proc and /dev below a root folder.
/// Tests have a root of their own.
class machine {
 public:
  explicit machine(std::filesystem::path root = "/") : root_{std::move(root)} {}

  /// Returns where an absolute path is.
  [[nodiscard]] std::filesystem::path at(const std::string& path) const;
  [[nodiscard]] bool has(const std::string& path) const;
  /// Returns the contents of a file, at most `bytes_max` of them. None: the file is not there, or
  /// cannot be read.
  [[nodiscard]] std::optional<std::string> bytes(const std::string& path) const;
  /// Returns the same without spaces at the end.
  [[nodiscard]] std::optional<std::string> text(const std::string& path) const;
  /// Returns the number that a file begins with, decimal, or hexadecimal after 0x.
  [[nodiscard]] std::optional<std::int64_t> number(const std::string& path) const;
  /// Returns the names in a folder, in order; none if there is no such folder.
  [[nodiscard]] std::vector<std::string> names(const std::string& folder) const;
  /// Returns the last part of a symbolic link's target; empty: it is none.
  [[nodiscard]] std::string link_name(const std::string& path) const;
  /// Returns the values of "Name: value" in a file such as /proc/meminfo.
  [[nodiscard]] std::optional<std::string> field(const std::string& path,
                                                 const std::string& name) const;

  static constexpr std::size_t bytes_max = std::size_t{1} << 18;

 private:
  std::filesystem::path root_;
};

}  // namespace doctor
