#pragma once

#if __cplusplus < 202002L
#error "cordma needs C++20 or later: compile with -std=c++20"
#endif

// This header includes all of cordma, for programs, but the bridges to other libraries, which
// stand beside it: asio.hpp and foreign_promise.hpp. Libraries better include what they use.

#include <cordma/agent/agent_options.hpp>
#include <cordma/agent/remote_mr.hpp>
#include <cordma/base/error.hpp>
#include <cordma/base/event_log.hpp>
#include <cordma/base/result.hpp>
#include <cordma/base/time.hpp>
#include <cordma/base/unique_fd.hpp>
#include <cordma/connection/connection.hpp>
#include <cordma/connection/connection_options.hpp>
#include <cordma/connection/endpoint.hpp>
#include <cordma/connection/listener.hpp>
#include <cordma/connection/prepared_connection.hpp>
#include <cordma/coro/channel.hpp>
#include <cordma/coro/event.hpp>
#include <cordma/coro/operation.hpp>
#include <cordma/coro/scheduler.hpp>
#include <cordma/coro/scope.hpp>
#include <cordma/coro/semaphore.hpp>
#include <cordma/coro/sleep.hpp>
#include <cordma/coro/stop.hpp>
#include <cordma/coro/sync_wait.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/datagram/datagram.hpp>
#include <cordma/datagram/datagram_socket.hpp>
#include <cordma/group/group.hpp>
#include <cordma/group/joining.hpp>
#include <cordma/io/executor.hpp>
#include <cordma/io/reactor.hpp>
#include <cordma/io/socket_address.hpp>
#include <cordma/io/wait_until.hpp>
#include <cordma/memory/local_mr.hpp>
#include <cordma/memory/mr_allocator.hpp>
#include <cordma/memory/mr_resource.hpp>
#include <cordma/memory/slice.hpp>
#include <cordma/messages/message_stream.hpp>
#include <cordma/queue/completion.hpp>
#include <cordma/queue/message.hpp>
#include <cordma/queue/shared_receives.hpp>
#include <cordma/queue/transfer_counters.hpp>
#include <cordma/queue/work_request.hpp>
#include <cordma/rpc/client.hpp>
#include <cordma/rpc/codec.hpp>
#include <cordma/rpc/method.hpp>
#include <cordma/rpc/server.hpp>
#include <cordma/runtime/metrics.hpp>
#include <cordma/runtime/runtime.hpp>
#include <cordma/runtime/runtime_group.hpp>
#include <cordma/security/credentials.hpp>
#include <cordma/verbs/access.hpp>
#include <cordma/verbs/completion_queue.hpp>
#include <cordma/verbs/device.hpp>
#include <cordma/verbs/gid.hpp>
#include <cordma/verbs/memory_region.hpp>
#include <cordma/verbs/protection_domain.hpp>
#include <cordma/verbs/queue_pair.hpp>
#include <cordma/verbs/queue_pair_attributes.hpp>
#include <cordma/version.hpp>
