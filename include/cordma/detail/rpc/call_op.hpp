#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/detail/base/counted.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/rpc/encodable_ref.hpp>
#include <cordma/messages/message_stream.hpp>
#include <cordma/rpc/method.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

namespace cordma::rpc::detail {

class client_core;
struct call_slot;

/// A method that is called, without its types.
struct call_target {
  std::uint64_t id;
  const char* name;
  bool is_idempotent;
};

/// A call without its types.
class CORDMA_EXPORT call_handle {
 public:
  [[nodiscard]] scheduler* own_scheduler() const noexcept;
  [[nodiscard]] bool failed() const noexcept;

 protected:
  call_handle(client_core& core, const call_target& target) noexcept;
  /// The value to which `encoded_` refers must live until the call has ended.
  bool begin(waiter& w, const environment& env) noexcept;
  bool fail_to_encode(std::exception_ptr why) noexcept;
  /// Gives the message with the reply. \errors as `client::call`.
  stream_message end();
  static std::span<const std::byte> reply_in(const stream_message& m) noexcept;

  std::optional<encodable_ref> encoded_;
  std::optional<call_options> options_;  // Mostly empty, which spares initializing ten words.

 private:
  struct CORDMA_EXPORT leave {
    void operator()(call_slot* slot) const noexcept;
  };
  cordma::detail::counted_ref<client_core> core_;
  const call_target& target_;
  std::unique_ptr<call_slot, leave> slot_;
  std::exception_ptr why_not_encoded_;
};

/// A call. Starts when it is awaited, and ends with its reply.
template <any_method M>
class [[nodiscard]] call_op final : public operation_base<call_op<M>>, public call_handle {
  using reply = typename M::reply;

 public:
  using value_type = std::conditional_t<is_view<reply>, viewed<reply>, reply>;

  /// `options`: none, or `call_options`.
  template <class... Options>
  call_op(client_core& core, typename M::request request, const Options&... options)
      : call_handle{core, target}, request_{std::move(request)} {
    (options_.emplace(options), ...);
  }

  bool start(waiter& w, const environment& env) noexcept {
    try {
      encoded_.emplace(request_);
    } catch (...) {
      return fail_to_encode(std::current_exception());
    }
    return begin(w, env);
  }
  value_type take() {
    stream_message message = end();
    reply value = codec<reply>::decode(reply_in(message));
    if constexpr (is_view<reply>) {
      return {std::move(message), value};
    } else {
      return value;
    }
  }
  result<value_type> take_result() { return cordma::detail::taken<value_type>(*this); }

 private:
  static constexpr call_target target{M::id, M::name.data(), M::is_idempotent};
  typename M::request request_;
};

}  // namespace cordma::rpc::detail
