#pragma once

#include "attempt.hpp"
#include "finding.hpp"
#include "frames.hpp"
#include "subject.hpp"

#include <cordma/runtime/runtime.hpp>

#include <chrono>
#include <memory>
#include <string>

namespace doctor {

// Tries use the device, as programs do, and add what came of it.

/// Makes a runtime as a program would. Null: it failed, and a finding says why.
std::unique_ptr<cordma::runtime> try_runtime(const subject& s, report& r);
/// Registers memory; asks for a dma-buf.
void try_registration(cordma::runtime& rt, const subject& s, report& r);
/// Does each operation between two queue pairs of this process.
void try_operations(cordma::runtime& rt, report& r);
/// Sends a datagram there and back (UD), and one to a multicast group.
void try_datagrams(cordma::runtime& rt, const subject& s, report& r);
/// Does a SEND and a WRITE over UC.
void try_uc(cordma::runtime& rt, report& r);
/// Does a WRITE and a SEND over XRC, if the device says that it has it.
void try_xrc(cordma::runtime& rt, report& r);
/// Finds out whether the device checks the range of memory windows.
void try_windows(cordma::runtime& rt, const subject& s, report& r);
/// Exchanges messages between two threads in event mode, with each reactor.
void try_reactors(const subject& s, report& r);

/// Makes the options of a runtime on the examined device.
cordma::runtime_options options_for(const subject& s);

/// Runs an attempt in which a message may be lost, so that only `deadline` ends it.
outcome outcome_in_time(cordma::runtime& rt, cordma::task<std::string> attempt,
                        std::chrono::milliseconds deadline);
/// The finding of a failure.
struct if_it_fails {
  doctor::severity severity = severity::error;
  std::string mend{};
};
/// Adds the finding of an attempt.
void add_outcome(report& r, const std::string& check, const outcome& o, const std::string& why,
                 const if_it_fails& otherwise);

}  // namespace doctor
