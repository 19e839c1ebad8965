#pragma once

#include <cstdint>
#include <string>

namespace cordma::sim::detail {

/// Function to which an address of the program belongs.
struct symbol_name {
  std::string file;           ///< without its folder; empty: none has that address
  std::string function;       ///< the linker's name; empty: the file does not say
  std::uintptr_t offset = 0;  ///< in the file

  /// Returns the function as its source names it, or the file and the offset.
  [[nodiscard]] std::string text() const;
};

/// Finds functions also that are not exported. \cost reads the symbols of the whole program.
symbol_name symbol_of(const void* address);

}  // namespace cordma::sim::detail
