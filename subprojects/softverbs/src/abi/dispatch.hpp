#pragma once

#include "abi/entry.hpp"
#include "abi/real_library.hpp"
#include "object/context.hpp"
#include "wire/no_cancellation.hpp"

#include <infiniband/verbs.h>

#include <cerrno>
#include <new>
#include <system_error>
#include <type_traits>

// <infiniband/verbs.h> defines macros of these names; this library defines the functions.
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port

namespace softverbs {

/// Runs soft0's implementation of a control verb, which is no cancellation point. Exceptions become
/// errors.
template <class Result, class Call>
Result without_exceptions(Call&& call) noexcept {
  const no_cancellation wholly;
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return real::failure<Result>(ENOMEM);
  } catch (const std::system_error& error) {
    return real::failure<Result>(error.code().value());
  }
}

/// Returns the result of a verb after setting errno, as libibverbs does. A positive result of the
/// verbs that serve() and serve_end() run is always an errno value.
template <class Result>
Result with_errno(Result result) noexcept {
  if constexpr (std::is_same_v<Result, int>)
    if (result > 0) errno = result;
  return result;
}

/// Serves a verb unless a fault makes it fail.
template <class Result, class... Parameters>
Result serve(entry::verb_name name, ibv_context* ctx, Result (*verb)(Parameters...),
             std::type_identity_t<Parameters>... arguments) noexcept {
  if (const int error = entry::refused(name, ctx)) return with_errno(real::failure<Result>(error));
  return with_errno(without_exceptions<Result>([&] { return verb(arguments...); }));
}

/// Serves objects of soft0. Objects of other devices go to the real library's verb of this name,
/// version and signature. A cancellation in there passes through here, so this is not noexcept.
template <real::name Name, real::name Version = "IBVERBS_1.1", class Result, class... Parameters>
Result dispatch(ibv_context* ctx, Result (*verb)(Parameters...),
                std::type_identity_t<Parameters>... arguments) {
  if (!is_soft(ctx)) return real::call<Name, Version>(verb, arguments...);
  return serve(entry::verb_name{Name.text}, ctx, verb, arguments...);
}

/// Serves a verb that destroys an object. In a forked child the verb succeeds and does not touch
/// the parent's object.
template <class Object>
int serve_end(entry::verb_name name, ibv_context* ctx, int (*verb)(Object*),
              Object* object) noexcept {
  if (const int error = entry::refused(name, ctx))
    return entry::orphaned(ctx) ? 0 : with_errno(error);
  return with_errno(without_exceptions<int>([&] { return verb(object); }));
}

template <real::name Name, real::name Version = "IBVERBS_1.1", class Object>
int dispatch_end(ibv_context* ctx, int (*verb)(Object*), Object* object) {
  if (!is_soft(ctx)) return real::call<Name, Version>(verb, object);
  return serve_end(entry::verb_name{Name.text}, ctx, verb, object);
}

/// Serves a verb that soft0 lacks. `function` is the entry point itself, for the signature.
template <real::name Name, real::name Version = "IBVERBS_1.1", class Result, class... Parameters>
Result real_only(ibv_context* ctx, Result (*function)(Parameters...),
                 std::type_identity_t<Parameters>... arguments) {
  if (is_soft(ctx)) return real::failure<Result>(EOPNOTSUPP);
  return real::call<Name, Version>(function, arguments...);
}

/// The result of a verb that returns -1 with errno.
[[nodiscard]] inline int or_minus_one(int error) noexcept {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

/// The entry points in a context: `ops` and the extended verbs.
[[nodiscard]] const verbs_context& context_table() noexcept;

}  // namespace softverbs
