#include "status.hpp"

#include "bounded.hpp"

#include <cordma/version.hpp>

#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>

namespace cordma::c {
namespace {

/// A thread's last failure: trivially constructed, so that reading it needs no guard.
struct last_failure {
  int status;
  std::array<char, 488> text;
};

thread_local constinit last_failure last{};

void put(std::string_view text) noexcept {
  const std::size_t length = text.copy(last.text.data(), last.text.size() - 1);
  last.text[length] = '\0';
}

/// Texts of cordma::errc, which are never destroyed: programs keep pointers to them.
const char* text_of_errc(int value) {
  static const auto& texts = *[] {
    auto* const all = new std::array<std::string, CORDMA_BAD_HANDLE>;
    for (int i = 0; i < CORDMA_BAD_HANDLE; ++i)
      (*all)[std::size_t(i)] = error::category().message(i);
    return all;
  }();
  const bool is_known = value > 0 && value < CORDMA_BAD_HANDLE;
  return is_known ? texts[std::size_t(value)].c_str() : "unknown status";
}

}  // namespace

int status_of(const failure& f) noexcept {
  const int value = f.code.value();
  if (f.code.category() == error::category()) return value;
  return f.code.category() == error::completion_category() ? CORDMA_WC + value
                                                           : CORDMA_ERRNO + value;
}

outcome outcome_of(const failure& f) noexcept {
  outcome how{.status = status_of(f)};
  try {
    how.text = f.to_string();
  } catch (const std::bad_alloc&) {
    how.text = f.detail.view();
  }
  return how;
}

outcome caught_outcome() noexcept {
  try {
    throw;
  } catch (const error& e) {
    return outcome_of(e.failure());
  } catch (const misuse& m) {
    return {m.status, m.text};
  } catch (const cancelled&) {
    return {CORDMA_CANCELLED, "stopped by cordma_stop or cordma_release"};
  } catch (const std::bad_alloc&) {
    return {CORDMA_ERRNO + ENOMEM, "no memory is left"};
  } catch (const std::exception& e) {
    return {CORDMA_ERRNO + EIO, e.what()};
  } catch (...) {
    return {CORDMA_ERRNO + EIO, "an exception of an unknown type"};
  }
}

void throw_timed_out() { detail::throw_error({.code = errc::timed_out, .call = "cordma"}); }

void throw_not_begun() {
  throw error{{.code = errc::timed_out,
               .call = "cordma",
               .detail =
                   "the call has not begun: a callback, or the look-up of a host's name, keeps "
                   "the context's thread"}};
}

int note(const outcome& how) noexcept {
  last.status = how.status;
  put(how.text.view());
  return how.status;
}

int note(int status, const char* text) noexcept {
  last.status = status;
  put(text);
  return status;
}

}  // namespace cordma::c

using namespace cordma::c;

int cordma_error_code() { return last.status; }

const char* cordma_error_text() { return last.text.data(); }

#define CORDMA_TEXT_OF(x) #x
#define CORDMA_TEXT(x) CORDMA_TEXT_OF(x)
const char* cordma_version() {
  return CORDMA_TEXT(CORDMA_VERSION_MAJOR) "." CORDMA_TEXT(CORDMA_VERSION_MINOR) "." CORDMA_TEXT(
      CORDMA_VERSION_PATCH);
}

const char* cordma_status_text(int status) {
  switch (status) {
    case CORDMA_OK: return "success";
    case CORDMA_BAD_HANDLE: return "no such handle: null, closed, or of another kind";
    case CORDMA_WRONG_THREAD: return "the context belongs to another thread";
    case CORDMA_IN_CALLBACK: return "would wait in a callback";
    case CORDMA_BAD_ARGUMENT: return "bad argument";
    case CORDMA_WRONG_STATE: return "not possible in this state";
    case CORDMA_CANCELLED: return "stopped";
    default: break;
  }
  if (status > CORDMA_ERRNO) {
    const char* const text = ::strerrordesc_np(status - CORDMA_ERRNO);
    return text != nullptr ? text : "unknown errno";
  }
  if (status > CORDMA_WC && status < CORDMA_ERRNO)
    return ::ibv_wc_status_str(ibv_wc_status(status - CORDMA_WC));
  try {
    return text_of_errc(status);
  } catch (const std::bad_alloc&) {
    return "no memory is left for the text";
  }
}
