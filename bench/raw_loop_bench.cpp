// Whether the raw loop that ours stands beside is as good as what others write.

#include "support/bench.hpp"
#include "support/raw_loopback.hpp"

#include <cordma/verbs/gid.hpp>

#include <link.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

using bench::raw_loopback;

constexpr std::size_t size_bytes = 64;
constexpr std::uint64_t messages = 1'000'000;
constexpr double ratio_min = 0.9;

/// The library that gives soft0 to this process; empty when it has none.
std::string softverbs() {
  std::string path;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        const std::string_view name{info->dlpi_name};
        if (name.find("libsoftverbs") != name.npos) *static_cast<std::string*>(to) = name;
        return 0;
      },
      &path);
  return path;
}

/// Million messages a second.
double perftest_rate(const raw_loopback& l) {
  const auto gid = cordma::verbs::choose_gid(l.ctx.gid_table(l.port.number)).entry.index;
  const std::string command = std::string{BENCH_FOLDER "/support/perftest "} + softverbs() + " " +
                              std::string{l.ctx.name()} + " " + std::to_string(gid) + " " +
                              std::to_string(size_bytes) + " " +
                              std::to_string(raw_loopback::depth);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe{::popen(command.c_str(), "r"), &::pclose};
  double rate = 0;
  if (pipe == nullptr || std::fscanf(pipe.get(), "%lf", &rate) != 1) {
    throw std::runtime_error{"no rate from " + command};
  }
  return rate;
}

double raw_rate(raw_loopback& l) {
  ibv_sge sge{.addr = reinterpret_cast<std::uint64_t>(l.local.bytes().data()),
              .length = unsigned{size_bytes},
              .lkey = l.local.slice().lkey()};
  ibv_send_wr wr{};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {l.remote.remote_slice().address(), l.remote.remote_slice().rkey()};
  const auto start = std::chrono::steady_clock::now();
  l.run_raw(wr, messages, raw_loopback::depth);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  return double(messages) / took.count();
}

}  // namespace

BENCH_ON_DEVICE("raw_loop/write/64B", "Is the raw loop at least as fast as ib_write_bw's?") {
  raw_loopback l;
  if (l.ctx.name() != "soft0") return;  // Elsewhere the two measure different things.
  const double raw = raw_rate(l);
  const double perftest = perftest_rate(l);
  recorder.count("beside ib_write_bw", "rate", "Mmsg/s", raw, perftest);
  if (raw < ratio_min * perftest)
    throw std::runtime_error{"the raw loop is slower: nothing to stand beside"};
}
