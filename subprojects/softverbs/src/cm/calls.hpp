#pragma once

#include <sys/types.h>

#include <cstddef>

// libsoftverbs.so's side of /dev/infiniband/rdma_cm, for libsoftverbs_cm.so of the same version. No
// program calls these.

extern "C" {

/// A channel: the result of one open() of the file. Descriptors may share the channel (dup).
struct softverbs_cm_channel;

/// Makes a channel whose descriptor is `fd`: an eventfd with EFD_SEMAPHORE, to which each event
/// that waits adds one. The channel keeps a copy of `fd` of its own. Null with errno.
softverbs_cm_channel* softverbs_cm_open(int fd);

/// Serves one command, as write(2) on the kernel's file does: returns `bytes`, or -1 with errno.
/// A cancellation point. GET_EVENT blocks as a read of the channel's descriptor does. `channel_of`
/// returns the channel of a descriptor, or null; it is called for MIGRATE_ID, with one descriptor.
/// The channel lives until this call returns.
ssize_t softverbs_cm_write(softverbs_cm_channel* channel, const void* command, std::size_t bytes,
                           softverbs_cm_channel* (*channel_of)(int fd));

/// The last descriptor was closed: destroys the channel's identifiers. No call on it may be under
/// way.
void softverbs_cm_close(softverbs_cm_channel* channel);
}
