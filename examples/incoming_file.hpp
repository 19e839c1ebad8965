#pragma once

// A file that example 10 receives. What it is called and how long it is are its sender's words.

#include "crc64.hpp"

#include <cordma/coro/sleep.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/runtime/runtime.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

/// After a system call.
inline void check(bool is_well, const std::string& what) {
  if (!is_well) throw std::system_error{errno, std::generic_category(), what};
}

/// Reads the file from `offset` on, as far as it fits.
inline std::span<std::byte> read_at(int fd, std::uint64_t offset, std::span<std::byte> into) {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t n = ::pread(fd, &into[done], into.size() - done, off_t(offset + done));
    check(n >= 0, "read");
    if (n == 0) break;
    done += std::size_t(n);
  }
  return into.first(done);
}

/// No way out of the folder, no hidden file (ours are), nothing that a terminal would obey.
inline std::string checked_name(std::string_view name) {
  const auto is_bad = [](unsigned char c) { return c == '/' || c < ' ' || c == 127; };
  if (name.empty() || name.size() > NAME_MAX || name[0] == '.' ||
      std::ranges::any_of(name, is_bad)) {
    throw std::runtime_error{
        "not a name for a file: it is a path, hidden, too long or unprintable"};
  }
  return std::string{name};
}

/// Has a temporary name until it is kept, and is gone if it never is, unless its program is killed.
class incoming_file {
 public:
  /// Throws at once if there is no space, and not when the last piece comes.
  incoming_file(const std::string& folder, std::string_view name, std::uint64_t size_bytes)
      : path_{folder + '/' + checked_name(name)}, size_bytes_{size_bytes}, temporary_{folder} {
    const auto length = off_t(std::min<std::uint64_t>(size_bytes, LLONG_MAX));
    const bool is_reserved = length == 0 || ::fallocate(temporary_.fd(), 0, 0, length) == 0;
    // Where the file system cannot tell, it must do with the length.
    check(is_reserved || (errno == EOPNOTSUPP && ::ftruncate(temporary_.fd(), length) == 0),
          std::to_string(size_bytes) + " bytes for '" + std::string{name} + "'");
  }

  void write(std::uint64_t offset, std::span<const std::byte> bytes) {
    if (offset > size_bytes_ || bytes.size() > size_bytes_ - offset) {
      throw std::out_of_range{"a piece lies beyond the end of its file"};
    }
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(temporary_.fd(), bytes.data(), bytes.size(), off_t(offset));
      check(n >= 0, path_);
      offset += std::uint64_t(n);
      bytes = bytes.subspan(std::size_t(n));
    }
  }

  /// Gives the checksum of the file system's copy.
  cordma::task<std::uint64_t> checksum() {
    std::vector<std::byte> buffer(std::size_t{1} << 20);
    crc64 sum;
    for (std::uint64_t at = 0; at < size_bytes_; at += buffer.size()) {
      sum.add(read_at(temporary_.fd(), at, buffer));
      co_await cordma::sleep_for({});  // Other tasks have their turn.
    }
    co_return sum.value();
  }

  /// Takes the place of a file of that name.
  void keep() { temporary_.rename_to(path_); }

 private:
  class temporary_file {
   public:
    explicit temporary_file(const std::string& folder)
        : path_{folder + "/.incoming-XXXXXX"}, fd_{::mkostemp(path_.data(), O_CLOEXEC)} {
      check(fd_.is_open(), path_);
    }
    temporary_file(const temporary_file&) = delete;
    temporary_file& operator=(const temporary_file&) = delete;
    ~temporary_file() {
      if (!is_kept_) ::unlink(path_.c_str());
    }
    [[nodiscard]] int fd() const { return fd_.get(); }
    void rename_to(const std::string& path) {
      check(::rename(path_.c_str(), path.c_str()) == 0, path);
      is_kept_ = true;
    }

   private:
    std::string path_;
    cordma::unique_fd fd_;
    bool is_kept_ = false;
  };

  const std::string path_;
  const std::uint64_t size_bytes_;
  temporary_file temporary_;
};
