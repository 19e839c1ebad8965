// Data-parallel training: each rank has examples of its own, all have the same model. In each step
// a rank sums up the gradient over its examples, and `all_reduce` makes the sum of all ranks. So
// each rank takes the same step. Usage: 15_training [DEVICE], as one rank of several: see
// 13_ring_hello.cpp.

#include <cordma/cordma.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <exception>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

namespace {

constexpr std::array truth{3.0F, -2.0F, 0.5F, 7.0F};  // Weights, and the bias, to be learnt.
constexpr std::size_t inputs = truth.size() - 1;
constexpr std::size_t examples_per_rank = 256;
constexpr int steps = 200;
constexpr float rate = 0.3F;

struct example {
  std::array<float, inputs> in{};
  float out = 0;
};

float predict(std::span<const float> weights, const example& e) {
  float sum = weights[inputs];
  for (std::size_t i = 0; i < inputs; ++i) sum += weights[i] * e.in[i];
  return sum;
}

std::vector<example> examples_of(unsigned rank) {
  std::mt19937 random{rank};
  std::uniform_real_distribution<float> value{-1, 1};
  std::normal_distribution<float> noise{0, 0.01F};
  std::vector<example> all(examples_per_rank);
  for (example& e : all) {
    for (float& one : e.in) one = value(random);
    e.out = predict(truth, e) + noise(random);
  }
  return all;
}

/// Sums up the gradient of the squared error, and behind it the squared error itself.
void sum_up(std::span<const example> examples, std::span<const float> weights,
            std::span<float> sums) {
  std::ranges::fill(sums, 0.0F);
  for (const example& e : examples) {
    const float error = predict(weights, e) - e.out;
    for (std::size_t i = 0; i < inputs; ++i) sums[i] += error * e.in[i];
    sums[inputs] += error;
    sums[truth.size()] += error * error;
  }
}

cordma::task<> train(cordma::runtime& rt) {
  cordma::group g = co_await cordma::group::join(rt);
  const std::vector<example> examples = examples_of(g.rank());
  const float count = float(examples_per_rank) * float(g.size());
  std::array<float, truth.size()> weights{};
  // The sums lie in registered memory, so nothing is copied or allocated in a step.
  cordma::local_mr memory = rt.memory().allocate_zeroed((truth.size() + 1) * sizeof(float));
  const std::span<float> sums = memory.slice().as<float>();
  for (int step = 0; step <= steps; ++step) {
    sum_up(examples, weights, sums);
    co_await g.all_reduce<float>(memory.slice(), memory.slice(), cordma::reduction::sum);
    if (g.rank() == 0 && step % 50 == 0)
      std::printf("step %3d: mean squared error %.6f\n", step, double(sums[truth.size()] / count));
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= rate * sums[i] / count;
  }

  // A sum has the same bits on all ranks, and so has what each has made of it.
  std::vector<float> all(g.size() * weights.size());
  co_await g.all_gather<float>(weights, all);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i] != weights[i % weights.size()]) throw std::runtime_error{"the weights differ"};
  for (std::size_t i = 0; i < weights.size(); ++i)
    if (std::abs(weights[i] - truth[i]) > 0.05F) throw std::runtime_error{"it has not converged"};
  if (g.rank() == 0)
    std::printf("%u ranks have the same weights: %.2f %.2f %.2f, bias %.2f\n", g.size(),
                double(weights[0]), double(weights[1]), double(weights[2]), double(weights[3]));
  co_await g.leave();
}

}  // namespace

int main(int argc, char** argv) try {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // Line by line, also into a pipe.
  cordma::runtime rt{{.device = argc > 1 ? argv[1] : ""}};
  rt.run(train(rt));
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
