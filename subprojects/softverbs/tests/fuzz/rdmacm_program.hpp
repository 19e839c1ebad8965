#pragma once

#include "cm/double.hpp"
#include "fuzz/script.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

namespace softverbs::fuzz {

inline constexpr unsigned write_event_number = 24;
inline constexpr std::uint32_t number_max = 0xffffff;  ///< Largest QP number and PSN.

/// A pointer as commands have it.
template <class Object>
std::uint64_t number_of(Object* to) noexcept {
  return reinterpret_cast<std::uintptr_t>(to);
}

/// The events that a program has read about one of its uids: enough to tell which may come next.
struct history {
  enum class stage : std::uint8_t {
    start,
    address,      ///< ADDR_RESOLVED
    route,        ///< ROUTE_RESOLVED
    response,     ///< CONNECT_RESPONSE
    established,  ///< ESTABLISHED
    disconnected,
    over,
  };
  enum class role : std::uint8_t { created, accepted, group };

  role of = role::created;
  stage at = stage::start;
  bool is_datagram = false;
  bool has_asked = false;  ///< CONNECT was served
  bool listens = false;    ///< LISTEN was served.
  bool is_gone = false;    ///< The object of the uid was destroyed.
};

/// An open rdma_cm file. Files outlive executions, since a descriptor is dear.
struct open_file {
  open_file();
  unique_fd counter;
  cm::channel events;
};

/// A program that gives commands to rdma_cm at random, and checks what rdma_cm answers.
class program {
 public:
  static constexpr std::size_t files = 2;
  static constexpr std::size_t answer_bytes = 512;

  program(cm::test::network& all, std::array<open_file, files>& open_files);

  void command(script& in) noexcept;
  void listen(script& in) noexcept;   ///< creates an identifier which listens
  void dial(script& in) noexcept;     ///< creates an identifier, and connects it
  void respond(script& in) noexcept;  ///< accepts, or disconnects
  void read_event(script& in) noexcept;
  void close(std::size_t file) noexcept;
  bool run() noexcept { return process_.run(); }
  [[nodiscard]] cm::test::process& process() noexcept { return process_; }

  void check() const noexcept;    ///< Checks the invariants between any two calls.
  void check_settled() noexcept;  ///< Checks the invariants when all times are over.
  void read_all() noexcept;
  /// Closes all, and checks that nothing is left; `counts`: no identifier either.
  void finish(bool counts) noexcept;

 private:
  /// A number that the program was told of. `uid` 0: its events are dropped.
  struct known {
    bool is_known = false;
    bool is_created = false;  ///< The program made it, not a request.
    std::uint64_t uid = 0;
    std::uint32_t reported = 0;  ///< Events that were read.
    std::size_t in = 0;          ///< the file
  };
  struct joined {
    std::uint32_t number;
    std::uint32_t of;
    std::uint64_t uid;
  };

  template <class Command>
  int serve(script& in, std::size_t file, unsigned number, Command& body,
            std::size_t out_bytes = 0) noexcept;
  int serve_bytes(std::size_t file, unsigned number, const void* body, std::size_t in_bytes,
                  std::size_t out_bytes) noexcept;
  template <class Answer>
  [[nodiscard]] Answer answer() const noexcept {
    Answer result{};
    std::memcpy(&result, answer_.data(), sizeof result);
    return result;
  }

  void do_command(script& in, unsigned number, std::size_t file, std::uint32_t id) noexcept;
  std::uint32_t create(script& in, std::size_t file, std::uint16_t space) noexcept;
  void destroy(script& in, std::size_t file, std::uint32_t id) noexcept;
  void bind(script& in, std::size_t file, std::uint32_t id) noexcept;
  void resolve(script& in, std::size_t file, std::uint32_t id) noexcept;
  void resolve_route(script& in, std::size_t file, std::uint32_t id) noexcept;
  void connect(script& in, std::size_t file, std::uint32_t id) noexcept;
  void set_listening(script& in, std::size_t file, std::uint32_t id) noexcept;
  void accept(script& in, std::size_t file, std::uint32_t id) noexcept;
  void reject(script& in, std::size_t file, std::uint32_t id) noexcept;
  void init_qp_attr(script& in, std::size_t file, std::uint32_t id) noexcept;
  void set_option(script& in, std::size_t file, std::uint32_t id) noexcept;
  void join(script& in, std::size_t file, std::uint32_t id, bool by_ip) noexcept;
  void leave(script& in, std::size_t file, std::uint32_t number) noexcept;
  void migrate(script& in, std::size_t file, std::uint32_t id) noexcept;
  void write_event(script& in, std::size_t file, std::uint32_t id) noexcept;

  known& at(std::uint32_t number) noexcept;
  void know(std::uint32_t number, const known& what) noexcept;
  [[nodiscard]] std::uint32_t some_id(script& in) const noexcept;
  [[nodiscard]] std::size_t file_of(std::uint32_t id, script& in) const noexcept;
  std::uint64_t new_uid(script& in, history::role) noexcept;
  void forget(std::uint32_t number) noexcept;
  void take(const rdma_ucm_event_resp&, const cm::event& before) noexcept;
  void take_in_order(history& of, cm::event_kind) noexcept;

  cm::test::process process_;
  std::array<open_file, files>& files_;
  std::array<std::uint8_t, answer_bytes> answer_{};
  std::vector<known> known_;
  std::vector<history> told_{1};  ///< Indexed by uid.
  std::vector<joined> groups_;
};

}  // namespace softverbs::fuzz
