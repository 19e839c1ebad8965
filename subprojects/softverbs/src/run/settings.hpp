#pragma once

#include <span>
#include <string>
#include <string_view>

// The options that stand for softverbs' environment variables.

namespace softverbs::run {

struct setting {
  const char* option;    ///< "--port"
  const char* argument;  ///< the word for its value in the help; null: it takes nothing
  const char* variable;  ///< the variable that it sets
  const char* value;     ///< the value that it sets, if it takes nothing
  const char* help;
  bool (*is_valid)(std::string_view value);
  const char* valid;  ///< the values that is_valid() takes, in words
};

[[nodiscard]] std::span<const setting> settings() noexcept;

inline constexpr unsigned port_when_unset = 47000;
/// TCP ports of processes, from SOFTVERBS_PORT on; the next one is rdma_cm's.
inline constexpr unsigned process_ports = 1024;

/// A whole number in [least, most], in digits alone; false if the text is none.
[[nodiscard]] bool parse_number(std::string_view text, unsigned least, unsigned most,
                                unsigned& number, int base = 10) noexcept;

/// The environment's value; empty if there is none.
[[nodiscard]] std::string environment(const char* variable);

}  // namespace softverbs::run
