#include "failures.hpp"

#include <cstdarg>
#include <cstdio>

namespace cordma::detail {

fixed_text<240> detail_text(const char* format, ...) noexcept {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

void throw_failure(errc code, const char* call, fixed_text<240> detail, failure::object_id object) {
  throw error{{.code = code, .call = call, .object = object, .detail = detail}};
}

void throw_errno(int errno_value, const char* call, fixed_text<240> detail,
                 failure::object_id object) {
  throw error{errno_failure(errno_value, call, object, detail)};
}

}  // namespace cordma::detail
