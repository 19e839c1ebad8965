#pragma once

#include "cordma.h"

#include <cordma/base/error.hpp>
#include <cordma/detail/base/fixed_text.hpp>

#include <utility>

namespace cordma::c {

/// A status with its text. \cost no allocation.
struct outcome {
  int status = CORDMA_OK;
  fixed_text<480> text{};
};

/// Thrown inside the library for what only C programs can do wrong; no program sees it.
struct misuse {
  int status;
  const char* text;
};

int status_of(const failure& f) noexcept;
outcome outcome_of(const failure& f) noexcept;
/// Returns the outcome of the exception that a `catch` handles now.
outcome caught_outcome() noexcept;

/// Notes a failure for `cordma_error_text` of the calling thread. Returns its status.
int note(const outcome& how) noexcept;
int note(int status, const char* text) noexcept;

/// Calls `f()`, which returns a status, and turns what it throws into one.
template <class F>
[[gnu::always_inline]] inline int guarded(F&& f) noexcept {
  try {
    return std::forward<F>(f)();
  } catch (...) {
    return note(caught_outcome());
  }
}

}  // namespace cordma::c
