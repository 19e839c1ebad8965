#pragma once

#include <cordma/base/error.hpp>

#include <cerrno>
#include <exception>
#include <new>

namespace cordma {

/// The failure of `call` by the exception that a `catch` handles now. One that is neither `error`
/// nor `bad_alloc` counts as `otherwise`.
inline failure caught(const char* call, errc otherwise = errc::bad_message) noexcept {
  try {
    throw;
  } catch (const error& e) {
    return e.failure();
  } catch (const std::bad_alloc&) {
    return errno_failure(ENOMEM, call);
  } catch (const std::exception& e) {
    return {.code = otherwise, .call = call, .detail = e.what()};
  } catch (...) {
    return {.code = otherwise, .call = call, .detail = "it threw what is no std::exception"};
  }
}

}  // namespace cordma
