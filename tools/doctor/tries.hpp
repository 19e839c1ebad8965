#pragma once

#include "finding.hpp"
#include "subject.hpp"

#include <cordma/runtime/runtime.hpp>

#include <memory>

namespace doctor {

// Tries use the device, as programs do, and add what came of it.

/// Makes a runtime as a program would. Null: it failed, and a finding says why.
std::unique_ptr<cordma::runtime> try_runtime(const subject& s, report& r);
/// Registers memory; asks for a dma-buf.
void try_registration(cordma::runtime& rt, const subject& s, report& r);
/// Does each operation between two queue pairs of this process.
void try_operations(cordma::runtime& rt, report& r);
/// Finds out whether the device checks the range of memory windows.
void try_windows(cordma::runtime& rt, const subject& s, report& r);
/// Exchanges messages between two threads in event mode, with each reactor.
void try_reactors(const subject& s, report& r);

/// Makes the options of a runtime on the examined device.
cordma::runtime_options options_for(const subject& s);

}  // namespace doctor
