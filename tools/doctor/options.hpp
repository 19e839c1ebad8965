#pragma once

#include "subject.hpp"

#include <cordma/connection/endpoint.hpp>

#include <string>

namespace doctor {

enum class role { help, here, peer, serve };

/// The parsed command line.
struct options {
  doctor::role role = doctor::role::here;
  std::string help{};  ///< The text to print for `help`.
  chosen_names names{};
  bool is_json = false;
  bool is_verbose = false;
  bool only_reads = false;   ///< Tries nothing.
  cordma::endpoint peer{};   ///< The server of `peer`.
  cordma::endpoint local{};  ///< The address of `serve`.
};

/// \errors std::invalid_argument: in one line, what is wrong and the way out.
options parse_options(int argc, char** argv);

}  // namespace doctor
