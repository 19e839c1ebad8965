#pragma once

#include <cordma/coro/task.hpp>
#include <cordma/detail/coro/frame_cache.hpp>
#include <cordma/detail/rpc/encodable_ref.hpp>
#include <cordma/rpc/method.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace cordma::rpc {

class server_call;

namespace detail {

struct incoming_call;

/// The part of a running call that knows its types. Lies in the call (`call_body_room`) if it fits.
class call_body : public frame_cache::recycled {
 public:
  virtual ~call_body() = default;
  /// Decodes the request and starts the handler. True: the handler has ended already.
  /// \errors what either throws.
  virtual bool start(std::span<const std::byte> request, server_call& call, waiter& w,
                     const environment& env) = 0;
  /// The reply, which lies in this. \errors what the handler threw.
  virtual const encodable_ref& end() = 0;

  bool is_decoded = false;  ///< exceptions come from the handler, no longer from the codec
};

/// Room in a call, enough for a `call_body` of bytes and small structs.
struct alignas(std::max_align_t) call_body_room {
  std::array<std::byte, 192> bytes;
};

/// A body comes with the function that destroys it.
using call_body_ptr = std::unique_ptr<call_body, void (*)(call_body*) noexcept>;

struct served_method {
  served_method(std::uint64_t i, std::string_view n) noexcept : id{i}, name{n} {}
  served_method(const served_method&) = delete;
  served_method& operator=(const served_method&) = delete;
  virtual ~served_method() = default;
  virtual call_body_ptr begin(call_body_room& room) = 0;
  const std::uint64_t id;
  const std::string_view name;
};

template <any_method M, class Handler>
class typed_method final : public served_method {
 public:
  explicit typed_method(Handler handler)
      : served_method{M::id, M::name}, handler_{std::move(handler)} {}
  call_body_ptr begin(call_body_room& room) override {
    constexpr bool fits = sizeof(body) <= sizeof room && alignof(body) <= alignof(call_body_room);
    if constexpr (fits) {
      return {::new (&room) body{handler_},
              [](call_body* b) noexcept { std::destroy_at(static_cast<body*>(b)); }};
    } else {
      return {new body{handler_}, [](call_body* b) noexcept { delete static_cast<body*>(b); }};
    }
  }

 private:
  class body final : public call_body {
   public:
    explicit body(Handler& handler) noexcept : handler_{handler} {}
    bool start(std::span<const std::byte> request, server_call& call, waiter& w,
               const environment& env) override {
      request_.emplace(codec<typename M::request>::decode(request));
      is_decoded = true;
      if constexpr (std::invocable<Handler&, typename M::request, server_call&>) {
        running_.emplace(handler_(std::move(*request_), call));
      } else {
        running_.emplace(handler_(std::move(*request_)));
      }
      return running_->start(w, env);
    }
    const encodable_ref& end() override {
      reply_.emplace(running_->take());
      return reply_bytes_.emplace(*reply_);
    }

   private:
    Handler& handler_;
    std::optional<typename M::request> request_;
    std::optional<task<typename M::reply>> running_;
    std::optional<typename M::reply> reply_;
    std::optional<encodable_ref> reply_bytes_;
  };

  Handler handler_;
};

template <class Handler, class M>
concept handles = requires(Handler& h, typename M::request request, server_call& call) {
  { h(std::move(request), call) } -> std::same_as<task<typename M::reply>>;
} || requires(Handler& h, typename M::request request) {
  { h(std::move(request)) } -> std::same_as<task<typename M::reply>>;
};

}  // namespace detail

}  // namespace cordma::rpc
