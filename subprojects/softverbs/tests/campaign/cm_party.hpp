#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <random>

namespace rig {

/// A process that uses rdma_cm by librdmacm, as others' programs do. It listens, connects, accepts,
/// rejects, disconnects and sends. It moves identifiers between its two channels, and destroys
/// them.
/// \thread one.
class cm_party {
 public:
  using number = std::uint64_t;  ///< number of a party; tells the peers apart

  cm_party(number own, std::uint64_t seed);
  ~cm_party();
  cm_party(const cm_party&) = delete;
  cm_party& operator=(const cm_party&) = delete;

  /// Gives the listener up, and with it softverbs' well-known port; makes one at the same port
  /// again.
  void stop_listening();
  void listen_again() { listen(port_); }
  [[nodiscard]] std::uint16_t port() const { return port_; }

  /// Starts a connection to a party.
  void connect(std::uint16_t port, number peer);
  /// Does something with a random connection, or nothing.
  void act();
  /// Takes the events and completions that are there; waits for the first at most so long.
  void step(int wait_ms);

  [[nodiscard]] bool has_connection_with(number peer) const;
  [[nodiscard]] std::size_t connections() const { return all_.size(); }
  /// Connections that came to be, with this party.
  [[nodiscard]] std::uint64_t established_with(number peer) const;
  void close_all();

  struct tally {
    std::uint64_t established = 0;
    std::uint64_t disconnected = 0;
    std::uint64_t rejected = 0;
    std::uint64_t unreachable = 0;
    std::uint64_t refused_calls = 0;  ///< calls on a connection whose peer had died
    std::uint64_t messages = 0;
    std::uint64_t migrated = 0;
  };
  [[nodiscard]] const tally& counts() const { return counts_; }

 private:
  struct connection {
    rdma_cm_id* id = nullptr;
    number peer = 0;
    ibv_mr* mr = nullptr;
    bool is_up = false;
    bool is_over = false;
    bool is_sending = false;
    std::array<number, 2> words{};  ///< the word sent, and the word received
  };
  struct closer {
    void operator()(rdma_event_channel* channel) const { rdma_destroy_event_channel(channel); }
  };
  using channel = std::unique_ptr<rdma_event_channel, closer>;

  static channel open_channel();
  std::uint64_t pick(std::uint64_t below) { return random_() % below; }
  void listen(std::uint16_t port);
  void take_events(rdma_event_channel& from);
  void handle(const rdma_cm_event& event);
  void take_request(const rdma_cm_event& event);
  void begin_connecting(connection& one);
  void begin_traffic(connection& one, const rdma_cm_event& event);
  /// False: the connection is over already.
  bool make_queue_pair(connection& one) const;
  [[nodiscard]] rdma_conn_param parameters() const;
  void post_receive(connection& one) const;
  void send(connection& one) const;
  void take_completions(connection& one);
  static void destroy(connection& one) noexcept;
  void sweep();

  number own_;
  std::mt19937_64 random_;
  std::array<channel, 2> channels_;
  rdma_cm_id* listener_ = nullptr;
  std::uint16_t port_ = 0;
  std::list<connection> all_;
  std::map<number, std::uint64_t> established_;
  tally counts_;
};

}  // namespace rig
