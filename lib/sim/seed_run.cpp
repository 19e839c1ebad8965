#include "seed_run.hpp"

#include "world_state.hpp"

#include <exception>
#include <memory>

namespace cordma::sim::detail {

seed_run::seed_run(const request& r) {
  auto state = std::make_unique<world_state>(r.seed, r.wanted, r.kept);
  world_state& w = *state;
  if (r.keeps_all_events) w.trace().keep_all();
  if (r.covers != nullptr) w.trace().cover(*r.covers);
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
