#pragma once

#include <cordma/sim.hpp>

#include <span>

namespace cordma::test {

/// Returns all scenarios. Each family has a file.
std::span<const sim::scenario> all_scenarios();

void play_standard(sim::world& w);
void play_transfers(sim::world& w);
void play_streams(sim::world& w);
void play_repeated_streams(sim::world& w);
void play_shared_receives(sim::world& w);
void play_repeated_shared_receives(sim::world& w);
void play_calls(sim::world& w);
void play_repeated_calls(sim::world& w);
void play_remote_memory(sim::world& w);
void play_loans(sim::world& w);
void play_troubled_loans(sim::world& w);
void play_datagrams(sim::world& w);
void play_repeated_datagrams(sim::world& w);
void play_connecting(sim::world& w);
void play_prepared(sim::world& w);
void play_stops(sim::world& w);
void play_collectives(sim::world& w);
void play_repeated_collectives(sim::world& w);
void play_dying_ranks(sim::world& w);
void play_key_value(sim::world& w);
void play_restarts(sim::world& w);
void play_device_errors(sim::world& w);
void play_failing_verbs(sim::world& w);
void play_polling(sim::world& w);
void play_echo_example(sim::world& w);
void play_key_value_example(sim::world& w);
void play_ring_example(sim::world& w);

}  // namespace cordma::test
