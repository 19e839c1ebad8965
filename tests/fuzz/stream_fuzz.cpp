// A hostile peer speaks on a message stream, against the whole of lib/messages' channel on soft0:
// message_siege.hpp. The victim's program sends, receives, keeps messages, and gives up.
#include "../../lib/messages/stream_channel.hpp"
#include "message_siege.hpp"

#include <algorithm>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size);

namespace cordma::fuzz {
namespace {

using detail::channel_ref;
using detail::message_channel;
using detail::stream_channel;
using support::started;

constexpr std::size_t kept_max = 6;

task<stream_message> receive(channel_ref channel) {
  co_return co_await detail::receive_message_op{static_cast<stream_channel&>(*channel.get())};
}

/// The victim's program: what it sends, waits for and keeps.
class program {
 public:
  program(test::agent_world& world, stream_channel& channel)
      : executor_{world.executor}, channel_{channel}, memory_{world.memory} {
    std::ranges::fill(source_, std::byte{0x77});
  }

  void act(script& in) {
    collect();
    const std::uint8_t what = in.byte();
    auto& sending = sends_[what / 8 % sends_.size()];
    auto& receiving = receives_[what / 8 % receives_.size()];
    switch (what % 8) {
      case 0: return send(sending, in.byte() % 65u, what);
      case 1:
      case 2: return send(sending, in.of(large_lengths), what);
      case 3:
        if (sending) sending->request_stop();
        return;
      case 4:
        if (!receiving && kept_.size() < kept_max)
          receiving.emplace(executor_, receive(channel_ref{channel_}));
        return;
      case 5: return fill(what / 8);
      case 6:
        if (what >= 0x80) return stop_fill(what / 8);
        if (receiving) receiving->request_stop();
        return;
      case 7:
        if (!kept_.empty()) kept_.erase(kept_.begin() + what / 8 % std::ptrdiff_t(kept_.size()));
        return;
    }
  }

  /// Takes what has ended.
  void collect() {
    for (auto& s : sends_)
      if (s && s->has_ended()) s.reset();
    for (auto& r : receives_) {
      if (!r || !r->has_ended()) continue;
      if (auto outcome = (**r).take_result(); outcome.has_value()) {
        kept_.push_back(std::move(outcome).value());
        must(kept_.back().size_bytes() <= large_max, "no message is longer than was agreed");
      }
      r.reset();
    }
    for (auto& f : fills_) {
      if (!f || !f->has_ended()) continue;
      if (auto outcome = (**f).take_result(); outcome.has_value())
        must(outcome->size_bytes <= large_max, "no message is longer than was agreed");
      f.reset();
    }
  }
  /// Gives up all that it waits for; a turn later nothing waits.
  void stop() {
    for (auto& s : sends_)
      if (s) s->request_stop();
    for (auto& r : receives_)
      if (r) r->request_stop();
    for (auto& f : fills_)
      if (f) f->request_stop();
  }
  void drop() {
    collect();
    const auto waits = [](const auto& one) { return one.has_value(); };
    must(std::ranges::none_of(sends_, waits), "a send that was stopped, or is cut off, has ended");
    must(std::ranges::none_of(receives_, waits), "and so has a receive");
    must(std::ranges::none_of(fills_, waits), "and one into chosen memory");
    kept_.clear();
  }

 private:
  /// Receives into memory of which some is too short.
  void fill(unsigned how) {
    auto& filling = fills_[how % fills_.size()];
    if (filling) return;
    local_mr& memory = targets_[how % fills_.size()];
    if (memory.size_bytes() == 0) memory = memory_.allocate_uninitialized(large_max);
    const std::size_t room = how < 28 ? large_max : large_max / 2;
    const auto where = [&memory, room](const detail::message_arrival& next) {
      must(next.size_bytes <= large_max, "nor is one that is only known");
      return memory.first(std::min(memory.size_bytes(), room));
    };
    filling.emplace(executor_,
                    detail::receive_into(detail::counted_ref<stream_channel>{channel_}, where));
  }
  /// Stops a wait, destroys it, or frees its memory.
  void stop_fill(unsigned how) {
    auto& filling = fills_[how % fills_.size()];
    if (how % 8 < 3) return filling.reset();
    if (how % 8 < 5) return targets_[how % fills_.size()].reset();
    if (filling) filling->request_stop();
  }
  void send(std::optional<started<task<>>>& sending, std::size_t size, std::uint8_t how) {
    if (sending) return;
    const auto immediate = how >= 0x80 ? std::optional<std::uint32_t>{how} : std::nullopt;
    sending.emplace(executor_, channel_.send_bytes(channel_ref{channel_},
                                                   std::span{source_}.first(size), immediate));
  }

  executor& executor_;
  stream_channel& channel_;
  std::array<std::byte, large_max> source_;
  std::array<std::optional<started<task<>>>, 6> sends_;
  std::array<std::optional<started<task<stream_message>>>, 2> receives_;
  mr_allocator& memory_;
  std::array<local_mr, 2> targets_;
  std::array<std::optional<started<task<detail::message_arrival>>>, 2> fills_;
  std::vector<stream_message> kept_;
};

class stream_siege final : public message_siege {
 private:
  void open(const detail::channel_resources& resources) override {
    auto& channel = message_channel::make<stream_channel>(resources, of_victim_);
    channel_ = channel_ref{channel};
    program_.emplace(world_, channel);
  }
  void collect() override { program_->collect(); }
  void give_up() override {
    program_->stop();
    drive();
    program_->drop();
  }
  void must_be_over() override { program_->drop(); }
  void leave() override { program_.reset(); }
  void forget() override { channel_ = {}; }

  void perform(script& in) override {
    constexpr unsigned acts_of_program = 4;
    const unsigned what = in.byte() % (acts + acts_of_program);
    if (what < acts) return act(what, in);
    if (what == acts) return say({.kind = kind::data}, in, std::span{zeros_}.first(in.byte() % 65));
    program_->act(in);
  }

  const std::array<std::byte, buffer_bytes> zeros_{};
  channel_ref channel_;
  std::optional<program> program_;
};

}  // namespace
}  // namespace cordma::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  // Never destroyed: the process ends with the fuzzer, its device's engine at work.
  static cordma::fuzz::message_siege& siege = *new cordma::fuzz::stream_siege;
  cordma::fuzz::script in{bytes, size};
  siege.run(in);
  return 0;
}
