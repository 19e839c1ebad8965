#pragma once

#include <csignal>
#include <cstddef>

// A double of the machine behind cm/calls.hpp: the program that defines it is asked before
// libsoftverbs.so. A command is one byte, and for `migrate` an int.

namespace machine {

enum command : unsigned char {
  nothing = 'n',  ///< succeeds
  refuse = 'r',   ///< EPROTO
  raise = 'e',    ///< one event more waits
  get = 'g',      ///< takes an event: blocks as read(2) does
  signal = 's',   ///< raises signal_number inside the machine's mutex
  migrate = 'm',  ///< names another channel by descriptor; EBADF: it is none
};

inline constexpr int signal_number = SIGUSR1;

/// Channels that are open.
int channels();
/// Commands that came.
long commands();
/// Calls that broke the rules of cm/calls.hpp.
int misuses();
/// The next softverbs_cm_open() fails with this error.
void fail_open(int error);

}  // namespace machine
