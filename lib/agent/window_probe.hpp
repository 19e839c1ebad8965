#pragma once

#include <cordma/io/executor.hpp>
#include <cordma/verbs/device.hpp>
#include <cordma/verbs/protection_domain.hpp>

namespace cordma {

/// True if a device checks the range of a type-2 memory window, and not only that of the
/// registration below it. Devices have to (IBTA 10.6.7.2); the kernel's rxe does not, and no
/// attribute says so. The probe binds a window to a part of a registration. A READ then goes just
/// beyond the window, between two queue pairs that are made for this alone.
/// \param executor   gives the time, and its host's `pause` lets the device work meanwhile.
/// \param port, gid  an ACTIVE port and a row of its table, as for a connection.
/// \errors  errc::not_supported: the device has no type-2 windows. errc::timed_out: the device
///   says nothing for 3 s. A `wc_errc`: it fails at what each device can do, such as a READ inside
///   the window. All errors of making queue pairs, registrations and windows. Nothing is left
///   behind.
/// \thread the one that reads the device's events, as the refusal may raise one.
/// \cost some twenty system calls, and three requests it waits for. Once for a device.
[[nodiscard]] bool checks_window_ranges(cordma::executor& executor, verbs::context& ctx,
                                        verbs::protection_domain& pd, const verbs::port_info& port,
                                        const verbs::gid_entry& gid);

}  // namespace cordma
