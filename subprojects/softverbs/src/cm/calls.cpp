#include "cm/calls.hpp"

#include "cm/machine.hpp"
#include "node/fork_mutex.hpp"
#include "node/gid_table.hpp"
#include "node/node.hpp"
#include "node/port.hpp"
#include "object/context.hpp"
#include "wire/no_cancellation.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <mutex>
#include <system_error>

// The process around the machine: its mutex, the node's engine, and forks.

using namespace softverbs;

namespace softverbs::cm {

namespace {

/// Guards the machine, and `current`. Never held while the node is called that starts and joins the
/// engine, because the engine takes it.
fork_mutex machine_mutex;

class process final : public machine_host, public node_service {
 public:
  using time = node_service::time;

  /// The engine runs while a channel needs it. errno value.
  int start_engine_for(softverbs_cm_channel&) noexcept;
  void close(softverbs_cm_channel&) noexcept;

  [[nodiscard]] bool abandoned() const noexcept { return abandoned_.load(); }
  void become_abandoned() noexcept { abandoned_.store(true); }
  machine& rdma_cm() noexcept { return machine_; }
  /// Under the machine's mutex, which the engine does not take to read the deadline.
  void note_deadline() noexcept {
    time next = machine_.deadline();
    if (machine_.network() != nullptr) next = std::min(next, machine_.network()->deadline());
    deadline_.store(next.time_since_epoch().count());
  }

  // machine_host
  std::unique_ptr<transport> make_transport(transport::listener& to) noexcept override {
    return cm::make_transport(to);
  }
  time now() noexcept override { return std::chrono::steady_clock::now(); }
  void on_earlier_deadline() noexcept override {
    note_deadline();  // The engine reads the deadline once it is awake.
    if (node_ != nullptr) node_->wake_service();
  }

  // node_service
  [[nodiscard]] int descriptor() const noexcept override {
    const std::lock_guard lock{machine_mutex};
    return machine_.network()->descriptor();
  }
  void run(time now) noexcept override;
  [[nodiscard]] time deadline() const noexcept override {
    return time{time::duration{deadline_.load()}};
  }
  void abandon() noexcept override { machine_.network()->abandon(); }

 private:
  int start() noexcept;

  machine machine_{*this};
  std::atomic<time::rep> deadline_{time::max().time_since_epoch().count()};
  std::atomic<bool> abandoned_{false};
  std::mutex hosting_;    ///< before `machine_mutex`; held while the node starts and stops
  unsigned users_ = 0;    ///< channels that need the engine; under `hosting_`
  node* node_ = nullptr;  ///< written under both
};

/// The machine's mutex. The machine's deadline may be another afterwards.
class machine_lock {
 public:
  explicit machine_lock(process& of) : of_{of} { machine_mutex.lock(); }
  machine_lock(const machine_lock&) = delete;
  machine_lock& operator=(const machine_lock&) = delete;
  ~machine_lock() {
    of_.note_deadline();
    machine_mutex.unlock();
  }

 private:
  process& of_;
};

process* current = nullptr;  ///< never deleted: channels refer to it

void leave_to_the_parent() noexcept {
  if (current != nullptr) current->become_abandoned();
  current = nullptr;
}
const int fork_handler = ::pthread_atfork(nullptr, nullptr, &leave_to_the_parent);

}  // namespace

}  // namespace softverbs::cm

struct softverbs_cm_channel {
  softverbs_cm_channel(cm::process& opened_by, unique_fd counter) noexcept
      : of{opened_by}, events{std::move(counter)} {}

  cm::process& of;
  cm::channel events;
};

namespace softverbs::cm {

namespace {

void process::run(time now) noexcept {
  const machine_lock lock{*this};
  machine_.run(now);
}

int process::start_engine_for(softverbs_cm_channel& one) noexcept {
  const std::lock_guard lock{hosting_};
  if (users_ == 0)
    if (const int error = start()) return error;
  const std::lock_guard inner{machine_mutex};
  if (!one.events.has_engine) ++users_;
  one.events.has_engine = true;
  return 0;
}

int process::start() noexcept {
  try {
    node& one = node::acquire();
    if (is_infiniband()) {
      node::release(one);
      throw std::system_error{EOPNOTSUPP, std::generic_category(),
                              "SOFTVERBS_LINK_LAYER=infiniband has no rdma_cm"};
    }
    int error = 0;
    {
      const machine_lock lock{*this};
      error = machine_.open_network();
      node_ = &one;
    }
    if (error == 0 && one.attach(*this)) return 0;
    {
      const machine_lock lock{*this};
      machine_.close_network();
      node_ = nullptr;
    }
    node::release(one);
    return error != 0 ? error : ENOMEM;
  } catch (const std::system_error& failure) {
    std::fprintf(stderr, "softverbs: rdma_cm cannot be served: %s\n", failure.what());
    return failure.code().value();
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}

void process::close(softverbs_cm_channel& one) noexcept {
  const std::lock_guard lock{hosting_};
  {
    const machine_lock inner{*this};
    machine_.close(one.events);
  }
  if (!one.events.has_engine || --users_ != 0) return;
  node_->detach(*this);
  node* const used = node_;
  {
    const machine_lock inner{*this};
    machine_.close_network();
    node_ = nullptr;
  }
  node::release(*used);
}

/// Waits for an event as a read of the eventfd does. The wait is a cancellation point.
int get_event(softverbs_cm_channel& from, const command_body& body, const no_cancellation& but) {
  if (const int error = machine::check_get_event(body)) return error;
  for (;;) {
    std::uint64_t count = 0;
    ::pthread_setcancelstate(but.before(), nullptr);
    const ssize_t got = ::read(from.events.descriptor(), &count, sizeof count);
    const int read_error = errno;
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    if (got != sizeof count) return read_error;
    const machine_lock lock{from.of};
    int error = 0;
    if (from.of.rdma_cm().get_event(from.events, body, error)) return error;
  }
}

int serve(softverbs_cm_channel& in, const void* bytes, std::size_t count,
          softverbs_cm_channel* (*channel_of)(int)) {
  ::pthread_testcancel();          // A write of the kernel's file is a cancellation point, too.
  const no_cancellation commands;  // A cancelled command would stay half done.
  if (in.of.abandoned()) return EIO;
  rdma_ucm_cmd_hdr header;
  if (count < sizeof header) return EINVAL;
  if (!guarded_copy(&header, bytes, sizeof header)) return EFAULT;
  if (header.in > count - sizeof header) return EINVAL;
  const command_body body{static_cast<const std::byte*>(bytes) + sizeof header, header.in,
                          header.out};
  if (header.cmd == RDMA_USER_CM_CMD_GET_EVENT) return get_event(in, body, commands);
  const channel_finder find = [&](int of, channel*& found) {
    softverbs_cm_channel* const other = channel_of(of);
    if (other == nullptr) return ::fcntl(of, F_GETFD) < 0 ? ENOENT : EINVAL;
    if (other->of.abandoned()) return EIO;
    found = &other->events;
    return 0;
  };
  for (;;) {
    {
      const machine_lock lock{in.of};
      const int error = in.of.rdma_cm().serve(in.events, header.cmd, body, find);
      if (error != machine::engine_needed) return error;
    }
    if (const int error = in.of.start_engine_for(in)) return error;
  }
}

}  // namespace

}  // namespace softverbs::cm

softverbs_cm_channel* softverbs_cm_open(int fd) {
  try {
    if (cm::fork_handler != 0) throw std::system_error{cm::fork_handler, std::generic_category()};
    // gid_count() and limits() take locks at their first call only, which must not happen under the
    // machine's mutex.
    (void)gid_count();
    (void)limits();
    unique_fd counter{::fcntl(fd, F_DUPFD_CLOEXEC, 0)};
    if (!counter) return nullptr;
    const std::lock_guard lock{cm::machine_mutex};
    install_fault_guard();  // The guard's mutex is no fork_mutex, but this one is.
    if (cm::current == nullptr) cm::current = new cm::process;
    return new softverbs_cm_channel{*cm::current, std::move(counter)};
  } catch (const std::system_error& failure) {
    errno = failure.code().value();
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  }
  return nullptr;
}

ssize_t softverbs_cm_write(softverbs_cm_channel* channel, const void* command, std::size_t bytes,
                           softverbs_cm_channel* (*channel_of)(int fd)) {
  int error = 0;
  try {
    error = cm::serve(*channel, command, bytes, channel_of);
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
  }
  if (error == 0) return static_cast<ssize_t>(bytes);
  errno = error;
  return -1;
}

void softverbs_cm_close(softverbs_cm_channel* channel) {
  // In a forked child, the identifiers are the parent's.
  if (!channel->of.abandoned()) channel->of.close(*channel);
  delete channel;
}
