#pragma once

#include "second_thread.hpp"

#include <support/loopback.hpp>
#include <support/raw_verbs.hpp>

#include <functional>
#include <utility>

namespace bench {

namespace raw = support::raw;

/// Messages of raw verbs between two threads, each with a completion queue of its own.
class raw_threads {
 public:
  /// `window`: the most messages at once.
  raw_threads(second_thread& other, std::size_t message_bytes, std::uint32_t window = 1)
      : other_{other}, here_{loop_, message_bytes, window}, there_{loop_, message_bytes, window} {
    const cordma::verbs::port_info& port = loop_.port;
    raw::connect(loop_.ctx, port, here_.qp, there_.qp.num());
    raw::connect(loop_.ctx, port, there_.qp, here_.qp.num());
    for (std::uint32_t i = 0; i < window; ++i) {
      here_.post_receive();
      there_.post_receive();
    }
  }
  /// `n` messages there and back, `window` of them at once.
  void round_trips(std::uint64_t n, std::uint64_t window = 1) {
    const std::function<void()> echo = [&] {
      for (std::uint64_t done = 0; done < n;) {
        for (std::uint64_t came = there_.receive(); came > 0; --came, ++done) there_.send();
      }
      there_.drain();
    };
    other_.start(&echo);
    std::uint64_t sent = 0;
    for (; sent < n && sent < window; ++sent) here_.send();
    for (std::uint64_t done = 0; done < n;) {
      const std::uint64_t came = here_.receive();
      done += came;
      for (std::uint64_t i = 0; i < came && sent < n; ++i, ++sent) here_.send();
    }
    here_.drain();
    other_.wait();
  }

 private:
  struct end {
    end(cordma::test::loopback& on, std::size_t message_bytes, std::uint32_t window)
        : memory{on.memory(message_bytes)},
          cq{on.ctx, 4 * window + 64},
          qp{on.pd, cq, cq, {.send_wr_max = 2 * window + 16, .recv_wr_max = window + 16}},
          piece{raw::piece(memory.bytes().data(), message_bytes, memory.slice().lkey())} {}
    void post_receive() { raw::post(qp, raw::receive{piece}); }
    void send() {
      while (sends > send_room) poll();
      raw::post(qp, raw::request{IBV_WR_SEND, piece, {}, inline_max});
      ++sends;
    }
    void poll() {
      raw::poll(cq, [this](const ibv_wc& wc) {
        if ((wc.opcode & IBV_WC_RECV) == 0) {
          --sends;
        } else {
          ++received;
          post_receive();
        }
      });
    }
    /// How many messages came, at least one; each has left a receive for another.
    std::uint64_t receive() {
      while (received == 0) poll();
      return std::exchange(received, 0);
    }
    void drain() {
      while (sends > 0) poll();
    }
    cordma::local_mr memory;
    cordma::verbs::completion_queue cq;
    cordma::verbs::queue_pair qp;
    const std::uint64_t send_room = qp.capabilities().send_wr_max - 1;
    const std::size_t inline_max = qp.capabilities().inline_max;
    const ibv_sge piece;
    std::uint64_t sends = 0, received = 0;
  };
  second_thread& other_;
  cordma::test::loopback loop_;
  end here_, there_;
};

}  // namespace bench
