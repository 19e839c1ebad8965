#include "text.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <system_error>

namespace perf {
namespace {

[[noreturn]] void throw_unwritable(const std::string& path) {
  throw std::runtime_error{path + ": cannot be written: " + std::generic_category().message(errno)};
}

}  // namespace

void append(std::string& out, const char* format, ...) {
  std::array<char, 256> line;
  va_list arguments;
  va_start(arguments, format);
  const int n = std::vsnprintf(line.data(), line.size(), format, arguments);
  va_end(arguments);
  if (n > 0) out.append(line.data(), std::min(std::size_t(n), line.size() - 1));
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      append(out, "\\u%04x", unsigned(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

void check_writable(const std::string& path) {
  if (path.empty()) return;
  std::ofstream file{path, std::ios::app};
  if (!file) throw_unwritable(path);
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file{path};
  file << text;
  file.close();
  if (!file) throw_unwritable(path);
}

}  // namespace perf
