#pragma once

#include <cordma/io/socket_address.hpp>

#include <istream>
#include <string>
#include <string_view>
#include <vector>

namespace top {

/// A page of metrics, and where it is.
struct target {
  std::string text;  ///< The address as text, "unix:@cordma-metrics-12-0" for one.
  cordma::socket_address address;
  std::string host = "localhost";  ///< For the request's head.
  std::string path = "/metrics";
  int pid = 0;             ///< The process that its name names; 0: none.
  bool was_found = false;  ///< Not named by the user: shown only if the user's own.
};

/// Reads "unix:/path", "unix:@name", "http://HOST:PORT/PATH" or "HOST:PORT". Asks the resolver,
/// which blocks. \errors std::invalid_argument: what is wrong; `cordma::error`: an unknown host.
target parse_target(std::string_view text);

/// Reads /proc/net/unix, where programs that serve their metrics at "@cordma-metrics-PID" or
/// "@cordma-metrics-PID-NUMBER" have a listening socket each.
/// \param pids  the processes that are asked for; empty: all.
std::vector<target> find_targets(std::istream& sockets, const std::vector<int>& pids);

}  // namespace top
