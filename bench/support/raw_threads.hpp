#pragma once

#include "second_thread.hpp"

#include <support/loopback.hpp>

#include <array>
#include <functional>

namespace bench {

/// Messages of raw verbs between two threads, each with a completion queue of its own.
class raw_threads {
 public:
  /// `window`: the most messages at once.
  raw_threads(second_thread& other, std::size_t message_bytes, std::uint32_t window = 1)
      : other_{other}, here_{loop_, message_bytes, window}, there_{loop_, message_bytes, window} {
    const cordma::verbs::port_info& port = loop_.port;
    cordma::test::connect(loop_.ctx, port, here_.qp, there_.qp.num());
    cordma::test::connect(loop_.ctx, port, there_.qp, here_.qp.num());
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
          qp{on.pd, cq, cq, {.send_wr_max = 2 * window + 16, .recv_wr_max = window + 16}} {
      wr.sg_list = from_or_to.sg_list = &piece;
      wr.num_sge = from_or_to.num_sge = 1;
      wr.opcode = IBV_WR_SEND;
      wr.send_flags = IBV_SEND_SIGNALED;
      if (message_bytes <= qp.capabilities().inline_max) wr.send_flags |= IBV_SEND_INLINE;
      piece = {.addr = reinterpret_cast<std::uint64_t>(memory.bytes().data()),
               .length = std::uint32_t(message_bytes),
               .lkey = memory.slice().lkey()};
    }
    void post_receive() {
      ibv_recv_wr* bad = nullptr;
      static_cast<void>(qp.post_recv(&from_or_to, &bad));
    }
    void send() {
      ibv_send_wr* bad = nullptr;
      while (sends > send_room) poll();
      if (qp.post_send(&wr, &bad) == 0) ++sends;
    }
    void poll() {
      std::array<ibv_wc, 16> entries;
      const int n = cq.poll(entries);
      for (int i = 0; i < n; ++i) {
        if ((entries[std::size_t(i)].opcode & IBV_WC_RECV) == 0) {
          --sends;
        } else {
          ++received;
          post_receive();
        }
      }
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
    ibv_sge piece{};
    ibv_send_wr wr{};
    ibv_recv_wr from_or_to{};
    std::uint64_t sends = 0, received = 0;
  };
  second_thread& other_;
  cordma::test::loopback loop_;
  end here_, there_;
};

}  // namespace bench
