// The pure half of device.h: interfaces and configuration in, devices out.
#ifndef RXE_USER_DEVICES_DEVICE_LIST_H_
#define RXE_USER_DEVICES_DEVICE_LIST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "rxe_user/devices/device.h"
#include "rxe_user/devices/netdev.h"

namespace rxe_user {

// The largest RoCE MTU (256..4096) whose packets fit an interface's MTU with
// the largest headers they may carry; 0 when not even 256 does.
uint32_t RoceMtu(uint32_t interface_mtu);

// `config` is the value of RXE_USER_DEVICES: comma separated entries `netdev`
// or `name=netdev`; empty for every interface that is up and has an address.
// `host_identity` tells this host and network namespace from all others; it
// goes into the GUIDs of interfaces whose MAC address does not. What is wrong
// with `config` is appended to `*problems`, one line each.
Devices BuildDevices(const std::vector<Interface>& interfaces,
                     const std::string& config,
                     const std::string& host_identity,
                     std::vector<std::string>* problems);

}  // namespace rxe_user

#endif  // RXE_USER_DEVICES_DEVICE_LIST_H_
