// Gloo's collectives over TCP on loopback: what cordma's stand beside.
//     gloo_collectives FOLDER     where the ranks meet

#include "orders.hpp"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <exception>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using bench::collective;
using bench::order;

class gloo_rank {
 public:
  gloo_rank(const bench::rank_of& mine, const std::string& folder)
      : context_{std::make_shared<gloo::rendezvous::Context>(int(mine.rank), int(mine.size))} {
    gloo::rendezvous::FileStore store{folder};
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr{"127.0.0.1"});
    context_->connectFullMesh(store, device);
  }

  collective barrier() {
    return
        [options = std::make_shared<gloo::BarrierOptions>(context_)] { gloo::barrier(*options); };
  }
  collective prepare(const order& asked);

 private:
  collective all_reduce(std::size_t floats, gloo::AllreduceOptions::Algorithm algorithm);
  collective all_reduce_by_halving(std::size_t floats);
  collective reduce_scatter(std::size_t floats);
  collective broadcast(std::size_t floats);
  collective all_gather(std::size_t floats);
  collective all_to_all(std::size_t floats);

  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::vector<float> in_ = std::vector<float>(bench::collective_bytes_max / sizeof(float));
  std::vector<float> out_ = in_;
};

collective gloo_rank::all_reduce(std::size_t floats, gloo::AllreduceOptions::Algorithm algorithm) {
  auto options = std::make_shared<gloo::AllreduceOptions>(context_);
  options->setOutput(out_.data(), floats);  // In place: there is no input.
  options->setAlgorithm(algorithm);
  options->setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
  return [options] { gloo::allreduce(*options); };
}

collective gloo_rank::all_reduce_by_halving(std::size_t floats) {
  auto algorithm = std::make_shared<gloo::AllreduceHalvingDoubling<float>>(
      context_, std::vector<float*>{out_.data()}, int(floats));
  return [algorithm] { algorithm->run(); };
}

collective gloo_rank::reduce_scatter(std::size_t floats) {
  auto algorithm = std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(
      context_, std::vector<float*>{out_.data()}, int(floats),
      std::vector<int>(std::size_t(context_->size), int(floats) / context_->size));
  return [algorithm] { algorithm->run(); };
}

collective gloo_rank::broadcast(std::size_t floats) {
  auto options = std::make_shared<gloo::BroadcastOptions>(context_);
  options->setOutput(out_.data(), floats);
  return [options, ranks = context_->size, root = 0]() mutable {
    options->setRoot(root++ % ranks);
    gloo::broadcast(*options);
  };
}

collective gloo_rank::all_gather(std::size_t floats) {
  auto options = std::make_shared<gloo::AllgatherOptions>(context_);
  options->setOutput(out_.data(), floats);  // In place: there is no input.
  return [options] { gloo::allgather(*options); };
}

collective gloo_rank::all_to_all(std::size_t floats) {
  auto options = std::make_shared<gloo::AlltoallOptions>(context_);
  options->setInput(in_.data(), floats);
  options->setOutput(out_.data(), floats);
  return [options] { gloo::alltoall(*options); };
}

collective gloo_rank::prepare(const order& asked) {
  const std::size_t floats = asked.bytes / sizeof(float);
  if (asked.operation == "barrier") return barrier();
  if (asked.operation == "broadcast") return broadcast(floats);
  if (asked.operation == "all_gather") return all_gather(floats);
  if (asked.operation == "all_to_all") return all_to_all(floats);
  if (asked.operation == "reduce_scatter") return reduce_scatter(floats);
  using algorithm = gloo::detail::AllreduceOptionsImpl::Algorithm;
  if (asked.operation == "all_reduce") return all_reduce(floats, algorithm::RING);
  if (asked.operation == "all_reduce:bcube") return all_reduce(floats, algorithm::BCUBE);
  if (asked.operation == "all_reduce:halving") return all_reduce_by_halving(floats);
  return {};
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) throw std::runtime_error{"the folder where ranks meet is missing"};
  const bench::rank_of mine = bench::begin_rank();
  gloo_rank here{mine, argv[1]};
  bench::serve_orders(
      mine.rank, [&](const order& asked) { return here.prepare(asked); }, here.barrier());
} catch (const std::exception& error) {
  std::cerr << "gloo_collectives: " << error.what() << '\n';
  return 1;
}
