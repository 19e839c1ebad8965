#pragma once

#include "collective_plan.hpp"
#include "limits.hpp"
#include "load.hpp"
#include "server.hpp"

#include <cordma/connection/endpoint.hpp>

#include <string>
#include <vector>

namespace perf {

enum class role { help, server, client, local, collectives };

/// The parsed command line.
struct options {
  perf::role role = role::help;
  std::string help{};  ///< the text to print for `help`
  server_options server{};
  // For a client, and for both ends in one command.
  client_options client{};
  cordma::endpoint to{};
  std::vector<job> jobs{};
  bool has_baseline = false;
  std::vector<limit> limits{};
  std::string json_file{}, csv_file{}, histogram_file{}, plot_file{};
  collectives_options collectives{};
};

inline constexpr std::uint16_t port_default = 7471;

/// \errors std::invalid_argument: in one line, what is wrong and the way out.
options parse_options(int argc, char** argv);

}  // namespace perf
