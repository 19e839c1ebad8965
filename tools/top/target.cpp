#include "target.hpp"

#include <cordma/base/error.hpp>
#include <cordma/connection/endpoint.hpp>

#include <algorithm>
#include <charconv>
#include <sstream>
#include <stdexcept>

namespace top {
namespace {

constexpr std::string_view name_prefix = "@cordma-metrics-";
/// Programs are sorted by hand and eye: more than this on one machine is somebody's mischief.
constexpr std::size_t targets_max = 1024;

/// Cuts a number off; -1: there is none.
int cut_number(std::string_view& rest) {
  int value = -1;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc{} || value < 0) return -1;
  rest.remove_prefix(std::size_t(end - rest.data()));
  return value;
}

/// Returns the process that an abstract name names; 0 if the name is no such one.
int pid_of(std::string_view name) {
  if (!name.starts_with(name_prefix)) return 0;
  name.remove_prefix(name_prefix.size());
  const int pid = cut_number(name);
  if (pid <= 0) return 0;
  if (name.empty()) return pid;
  if (name.front() != '-') return 0;
  name.remove_prefix(1);
  return cut_number(name) >= 0 && name.empty() ? pid : 0;
}

bool is_listening(const std::string& flags) {
  constexpr unsigned long accept_con = 0x10000;  // __SO_ACCEPTCON of the kernel's net.h.
  unsigned long value = 0;
  const auto [end, error] = std::from_chars(flags.data(), flags.data() + flags.size(), value, 16);
  return error == std::errc{} && (value & accept_con) != 0;
}

cordma::endpoint parse_endpoint(std::string_view text, const std::string& target) {
  constexpr const char* way_out = ": name a process, unix:PATH, unix:@NAME or http://HOST:PORT";
  try {
    cordma::endpoint where = cordma::endpoint::parse(text);
    if (where.kind != cordma::endpoint::bootstrap::rdma_cm) return where;
  } catch (const cordma::error&) {
    // The way out says more.
  }
  throw std::invalid_argument{target + way_out};
}

}  // namespace

target parse_target(std::string_view text) {
  target made;
  made.text = text;
  constexpr std::string_view scheme = "http://";
  const bool is_url = text.starts_with(scheme);
  if (text.starts_with("https://"))
    throw std::invalid_argument{std::string{text} + ": cordma-top speaks no TLS"};
  if (is_url) {
    text.remove_prefix(scheme.size());
    if (const std::size_t slash = text.find('/'); slash != text.npos) {
      made.path = text.substr(slash);
      text = text.substr(0, slash);
    }
    made.host = text;
    if (std::ranges::any_of(made.path, [](char c) { return c <= ' ' || c == '\x7f'; }))
      throw std::invalid_argument{made.text + ": a path has no blanks"};
  }
  const cordma::endpoint where = parse_endpoint(text, made.text);
  made.address = where.kind == cordma::endpoint::bootstrap::unix_socket
                     ? cordma::socket_address::unix_path(where.host)
                     : cordma::socket_address::resolve(where.host, where.port).front();
  return made;
}

std::vector<target> find_targets(std::istream& sockets, const std::vector<int>& pids) {
  std::vector<target> found;
  std::string line;
  std::getline(sockets, line);  // The headings.
  while (found.size() < targets_max && std::getline(sockets, line)) {
    std::istringstream words{line};
    std::string number, references, protocol, flags, type, state, inode, name;
    words >> number >> references >> protocol >> flags >> type >> state >> inode >> name;
    const int pid = pid_of(name);
    if (pid == 0 || !is_listening(flags)) continue;
    if (!pids.empty() && std::ranges::find(pids, pid) == pids.end()) continue;
    target one;
    one.text = "unix:" + name;
    one.address = cordma::socket_address::unix_path(name);
    one.pid = pid;
    one.was_found = pids.empty();
    found.push_back(std::move(one));
  }
  std::ranges::sort(found, [](const target& a, const target& b) {
    return std::pair{a.pid, a.text} < std::pair{b.pid, b.text};
  });
  return found;
}

}  // namespace top
