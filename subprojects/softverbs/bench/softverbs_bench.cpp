// Compares softverbs' costs with those of other means of the machine, all measured in one run.
#include "other_process.hpp"
#include "recorder.hpp"

#include <sys/resource.h>
#include <time.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace bench {
namespace {

const scale half_trip{"half round trip", "us", 0.5e-3};
const scale latency{"post to completion", "us", 1e-3};
const scale bandwidth{"bandwidth", "GB/s", static_cast<double>(large_bytes), true};
const scale rate{"rate", "M/s", 1e3, true};

double process_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

void across_ping_pong(recorder& r, other_process& other) {
  std::printf("Two processes: RC SEND ping-pong, both sides poll\n");
  std::uint64_t allocated = 0;
  const auto ping_pong = [&](std::uint32_t bytes, bool events) {
    return [&other, &allocated, bytes, events](std::uint64_t n) {
      other.start({events ? task::echo_events : task::echo, bytes, n});
      for (std::uint64_t i = 0; i < n; ++i) {
        other.local().send(bytes);
        other.local().receive(events);
      }
      allocated += other.finish();
    };
  };
  for (const std::uint32_t bytes : {8u, 64u, 4096u}) {
    const side bare{"bare spin", [&](std::uint64_t n) { other.bare(n); }};
    const side tcp{"TCP loopback", [&, bytes](std::uint64_t n) { other.tcp(bytes, n); }};
    const work ours = ping_pong(bytes, false);
    ours(1000);
    allocated = 0;
    const auto found =
        r.compare("send " + std::to_string(bytes) + " B", half_trip, {bare, tcp}, ours);
    r.allocated("send " + std::to_string(bytes) + " B, other side", static_cast<double>(allocated));
    if (bytes != 8) continue;
    r.bar("8 B SEND between processes, half a round trip <= 1 us", found.ours <= 1);
    r.bar("... and <= 5 times a bare spin ping-pong (aim)", found.ours <= 5 * found.first);
  }
  std::printf("Two processes: the same, both sides sleep until an event\n");
  const side tcp{"TCP loopback", [&](std::uint64_t n) { other.tcp(8, n); }};
  r.compare("send 8 B, events", half_trip, {tcp}, ping_pong(8, true));
}

void across_bulk(recorder& r, other_process& other) {
  std::printf("Two processes: the other one never polls, its engine works\n");
  endpoint& local = other.local();
  std::vector<std::byte> target(local.memory.size());
  const side copy{"memcpy", [&](std::uint64_t n) {
                    for (std::uint64_t i = 0; i < n; ++i) {
                      const std::size_t at = i % large_count * large_bytes;
                      std::memcpy(&target[at], &local.memory[at], large_bytes);
                    }
                  }};
  const auto found = r.compare("write 1 MiB between processes", bandwidth, {copy},
                               [&](std::uint64_t n) { local.write(large_bytes, n, 8); });
  r.bar("1 MiB WRITEs between processes >= 35 % of memcpy", found.ours >= 0.35 * found.first);
  r.compare("write 8 B between processes", latency, {},
            [&](std::uint64_t n) { local.write(8, n, 1); });
  r.compare("write 8 B, depth 64", rate, {}, [&](std::uint64_t n) { local.write(8, n, depth); });
  std::printf("Two processes: both poll\n");
  r.compare("send 8 B, depth 64", rate, {}, [&](std::uint64_t n) {
    other.start({task::receive, 8, n});
    local.send_many(8, n);
    other.finish();
  });
}

/// Two queue pairs of this process, connected with each other.
struct loopback {
  rig::device device;
  std::vector<std::byte> source = std::vector<std::byte>(large_bytes * large_count);
  std::vector<std::byte> target = source;
  rig::mr_ptr source_mr = device.reg(source.data(), source.size());
  rig::mr_ptr target_mr = device.reg(target.data(), target.size());
  rig::cq_ptr cq = device.make_cq(2 * depth);
  rig::cq_ptr peer_cq = device.make_cq(2 * depth);
  rig::qp_options options{.sends = 2 * depth, .receives = 2 * depth};
  rig::qp_ptr qp = rig::make_qp(device, cq.get(), cq.get(), options);
  rig::qp_ptr peer = rig::make_qp(device, peer_cq.get(), peer_cq.get(), options);

  loopback() {
    rig::to_init(qp.get());
    rig::to_init(peer.get());
    rig::connect(qp.get(), device, {peer->qp_num, 0, 0, device.gid});
    rig::connect(peer.get(), device, {qp->qp_num, 0, 0, device.gid});
  }
  void post(ibv_wr_opcode opcode, std::size_t bytes, std::size_t at = 0, unsigned flags = 0) {
    rig::request r{opcode, 0, rig::piece(source_mr.get(), &source[at], bytes),
                   flags | IBV_SEND_SIGNALED};
    r.to(reinterpret_cast<std::uintptr_t>(&target[at]), target_mr->rkey);
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) r.operands(1);
    rig::check(r.post(qp.get()), "ibv_post_send");
  }
  void post_and_reap(ibv_wr_opcode opcode, std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i) {
      post(opcode, 8);
      rig::wait_success(cq.get());
    }
  }
  void send_and_receive(std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i) {
      rig::post_recv(peer.get(), 0, rig::piece(target_mr.get(), target.data(), 64));
      post(IBV_WR_SEND, 8, 0, IBV_SEND_INLINE);
      rig::wait_success(peer_cq.get());
      rig::wait_success(cq.get());
    }
  }
  void write_at_depth(std::uint64_t n) {
    std::uint64_t open = 0;
    for (std::uint64_t i = 0; i < n; ++i) {
      post(IBV_WR_RDMA_WRITE, 8);
      if (++open < depth) continue;
      ibv_wc entries[depth];
      open -= static_cast<std::uint64_t>(ibv_poll_cq(cq.get(), depth, entries));
    }
    for (; open > 0; --open) rig::wait_success(cq.get());
  }
};

void in_process(recorder& r) {
  std::printf("One process, one thread\n");
  loopback loop;
  const auto op = [&](ibv_wr_opcode opcode) {
    return [&loop, opcode](std::uint64_t n) { loop.post_and_reap(opcode, n); };
  };
  const auto found = r.compare("write 8 B", latency, {}, op(IBV_WR_RDMA_WRITE));
  r.bar("8 B WRITE in one process <= 0.4 us", found.ours <= 0.4);
  r.compare("read 8 B", latency, {}, op(IBV_WR_RDMA_READ));
  r.compare("fetch-and-add", latency, {}, op(IBV_WR_ATOMIC_FETCH_AND_ADD));
  r.compare("send 8 B and receive it", latency, {},
            [&](std::uint64_t n) { loop.send_and_receive(n); });
  r.compare("write 8 B at depth 64", rate, {}, [&](std::uint64_t n) { loop.write_at_depth(n); });

  std::vector<std::byte> copied(loop.source.size());
  const side copy{"memcpy", [&](std::uint64_t n) {
                    for (std::uint64_t i = 0; i < n; ++i) {
                      const std::size_t at = i % large_count * large_bytes;
                      std::memcpy(&copied[at], &loop.source[at], large_bytes);
                    }
                  }};
  const auto bulk = r.compare("write 1 MiB", bandwidth, {copy}, [&](std::uint64_t n) {
    for (std::uint64_t i = 0; i < n; ++i) {
      loop.post(IBV_WR_RDMA_WRITE, large_bytes, i % large_count * large_bytes);
      rig::wait_success(loop.cq.get());
    }
  });
  r.bar("1 MiB WRITEs in one process >= 50 % of memcpy", bulk.ours >= 0.5 * bulk.first);
}

void idle(recorder& r) {
  std::printf("A device with queue pairs to another process, and nothing to do\n");
  const double before = process_seconds();
  const timespec second{1, 0};
  ::nanosleep(&second, nullptr);
  r.count({"idle", "CPU", "%", 100 * (process_seconds() - before), 0});
}

int run(const std::string& filter, const std::string& json) {
  recorder r;
  const auto wanted = [&](const char* name) {
    return std::string{name}.find(filter) != std::string::npos;
  };
  if (wanted("local")) in_process(r);
  if (wanted("pingpong") || wanted("bulk") || wanted("idle")) {
    other_process other;
    if (wanted("pingpong")) across_ping_pong(r, other);
    if (wanted("bulk")) across_bulk(r, other);
    if (wanted("idle")) idle(r);
  }
  if (!json.empty()) r.write_json(json);
  return r.verdict();
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  const int status = rig::play_role(argc, argv);
  if (status >= 0) return status;
  std::string json, filter;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--needs-device") return 1;  // softverbs brings its own device.
    if (argument == "--json" && i + 1 < argc) {
      json = argv[++i];
    } else if (argument.starts_with("-")) {
      std::fprintf(stderr, "usage: %s [--json FILE] [local|pingpong|bulk|idle]\n", argv[0]);
      return 2;
    } else {
      filter = argument;
    }
  }
  try {
    return bench::run(filter, json);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "failed: %s\n", error.what());
    return 1;
  }
}
