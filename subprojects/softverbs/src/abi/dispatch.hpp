#pragma once

#include "abi/entry.hpp"
#include "abi/real_library.hpp"
#include "object/context.hpp"

#include <infiniband/verbs.h>

#include <cerrno>
#include <new>
#include <system_error>
#include <type_traits>

// These names are macros that choose among entry points; we define the entry points.
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port

namespace softverbs {

/// Runs soft0's side of a control verb: no exception leaves.
template <class Result, class Call>
Result guarded(Call&& call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    return real::failure<Result>(ENOMEM);
  } catch (const std::system_error& error) {
    return real::failure<Result>(error.code().value());
  }
}

/// What a verb returns, after errno was set as libibverbs sets it: also where the result is the
/// error. The verbs that serve() and serve_end() run have no positive result but an errno value.
template <class Result>
Result with_errno(Result result) noexcept {
  if constexpr (std::is_same_v<Result, int>)
    if (result > 0) errno = result;
  return result;
}

/// A verb that soft0 serves unless it is told to fail.
template <class Result, class... Parameters>
Result serve(entry::verb_name name, ibv_context* ctx, Result (*verb)(Parameters...),
             std::type_identity_t<Parameters>... arguments) noexcept {
  if (const int error = entry::refused(name, ctx)) return with_errno(real::failure<Result>(error));
  return with_errno(guarded<Result>([&] { return verb(arguments...); }));
}

/// Serves soft0's objects, and hands those of other devices to the real library's verb of this name
/// and version, which has the same signature.
template <real::name Name, real::name Version = "IBVERBS_1.1", class Result, class... Parameters>
Result dispatch(ibv_context* ctx, Result (*verb)(Parameters...),
                std::type_identity_t<Parameters>... arguments) noexcept {
  if (!is_soft(ctx)) return real::call<Name, Version>(verb, arguments...);
  return serve(entry::verb_name{Name.text}, ctx, verb, arguments...);
}

/// Serves a verb that ends an object. In the child of a fork it succeeds, and leaves the parent's
/// object alone.
template <class Object>
int serve_end(entry::verb_name name, ibv_context* ctx, int (*verb)(Object*),
              Object* object) noexcept {
  if (const int error = entry::refused(name, ctx))
    return entry::orphaned(ctx) ? 0 : with_errno(error);
  return with_errno(guarded<int>([&] { return verb(object); }));
}

template <real::name Name, real::name Version = "IBVERBS_1.1", class Object>
int dispatch_end(ibv_context* ctx, int (*verb)(Object*), Object* object) noexcept {
  if (!is_soft(ctx)) return real::call<Name, Version>(verb, object);
  return serve_end(entry::verb_name{Name.text}, ctx, verb, object);
}

/// A verb that soft0 does not have: `function` is the entry point itself, for its signature.
template <real::name Name, real::name Version = "IBVERBS_1.1", class Result, class... Parameters>
Result real_only(ibv_context* ctx, Result (*function)(Parameters...),
                 std::type_identity_t<Parameters>... arguments) noexcept {
  if (is_soft(ctx)) return real::failure<Result>(EOPNOTSUPP);
  return real::call<Name, Version>(function, arguments...);
}

/// For verbs that answer -1 with errno.
[[nodiscard]] inline int or_minus_one(int error) noexcept {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

/// The entry points that live in a context: `ops` and the extended verbs.
[[nodiscard]] const verbs_context& context_table() noexcept;

}  // namespace softverbs
