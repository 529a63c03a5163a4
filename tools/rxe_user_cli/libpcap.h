// libpcap, loaded when a capture is read: of all that rxe-user does nothing
// else needs it, and smaller systems have none, or have it by another name.
#ifndef TOOLS_RXE_USER_CLI_LIBPCAP_H_
#define TOOLS_RXE_USER_CLI_LIBPCAP_H_

#include <pcap/pcap.h>

#include <string>

namespace rxe_user_cli {

struct Libpcap {
  decltype(&::pcap_close) close;
  decltype(&::pcap_datalink) datalink;
  decltype(&::pcap_datalink_val_to_name) datalink_val_to_name;
  decltype(&::pcap_fopen_offline_with_tstamp_precision)
      fopen_offline_with_tstamp_precision;
  decltype(&::pcap_geterr) geterr;
  decltype(&::pcap_next_ex) next_ex;
};

// Null, with why, if it is not installed. It stays loaded.
const Libpcap* LoadLibpcap(std::string* why);

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_LIBPCAP_H_
