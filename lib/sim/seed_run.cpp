#include "seed_run.hpp"

#include "world_state.hpp"

#include <exception>
#include <memory>
#include <utility>

namespace cordma::sim::detail {
namespace {

constinit world_state* played_now = nullptr;

/// Names the world of a run while that goes on, for a process that dies.
class naming {
 public:
  explicit naming(world_state& w) noexcept { played_now = &w; }
  naming(const naming&) = delete;
  ~naming() { played_now = nullptr; }
};

}  // namespace

world_state* seed_run::world_now() noexcept { return played_now; }

seed_run::seed_run(const request& r) {
  auto state = std::make_unique<world_state>(r.seed, r.wanted, r.kept);
  world_state& w = *state;
  if (r.keeps_all_events) w.trace().keep_all();
  if (r.covers != nullptr) w.trace().cover(*r.covers);
  const naming named{w};  // Programs end with `played`, and may die of that.
  world played{std::move(state)};
  try {
    r.what->play(played);
  } catch (const finding& f) {
    found = f.what();
  } catch (const std::exception& e) {
    found = std::string{"the scenario failed: "} + e.what();
  }
  hash = w.trace().hash();
  events = w.events();
  for (std::size_t k = 0; k < decision_kinds; ++k)
    decisions_made[k] = w.decisions_of(decision_kind(k)).made();
  faults_happened = w.decisions_of(decision_kind::fault).happened();
  trace = w.trace().all();
  for (const auto& host : w.hosts()) host_names.push_back(host->name());
}

}  // namespace cordma::sim::detail
