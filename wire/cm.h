// Codec for MADs of communication management: class 0x07, version 2, method
// Send (InfiniBand specification chapter 12). cm_messages.h defines the
// messages.
//
// `CmView` is a checked view of received bytes; its accessors need no further
// checks. `EmitCm` writes a whole MAD.

#ifndef WIRE_CM_H_
#define WIRE_CM_H_

#include <cstdint>
#include <span>

#include "wire/cm_messages.h"
#include "wire/mad.h"

namespace wire {

// Why bytes are not a CM message, in order of the checks.
enum class CmParseError : uint8_t {
  kOk,
  kBadSize,           // other than kMadSize
  kOtherClass,        // base version or management class
  kBadVersion,        // class version other than 2
  kOtherMethod,       // such as Get and Set of ClassPortInfo
  kUnknownAttribute,  // none of CmAttribute
};

// Points into the caller's bytes, which must outlive it.
class CmView {
 public:
  // An empty view. It may only be assigned to.
  CmView() = default;

  // Checks `mad` and sets `*out` to view it; on error `*out` is unchanged.
  // Field values are not checked.
  static CmParseError Parse(std::span<const uint8_t> mad, CmView* out);

  MadHeader header() const { return LoadMadHeader(mad_); }
  CmAttribute attribute() const {
    return static_cast<CmAttribute>(LoadBe16(mad_ + 16));
  }
  uint64_t transaction_id() const { return LoadBe64(mad_ + 8); }
  std::span<const uint8_t, kMadSize> bytes() const {
    return std::span<const uint8_t, kMadSize>(mad_, kMadSize);
  }

  // A REQ has no remote ID. In SIDR messages the local ID is the request ID.
  uint32_t local_comm_id() const { return LoadBe32(mad_ + kMadHeaderSize); }
  uint32_t remote_comm_id() const {
    return LoadBe32(mad_ + kMadHeaderSize + 4);
  }

  // Decodes the message at each call. Requires the matching attribute().
  // Lengths of additional information are limited to the field's size.
  CmReq req() const { return Read<CmReq>(); }
  CmMra mra() const { return Read<CmMra>(); }
  CmRej rej() const { return Read<CmRej>(); }
  CmRep rep() const { return Read<CmRep>(); }
  CmRtu rtu() const { return Read<CmRtu>(); }
  CmDreq dreq() const { return Read<CmDreq>(); }
  CmDrep drep() const { return Read<CmDrep>(); }
  CmApr apr() const { return Read<CmApr>(); }
  CmSidrReq sidr_req() const { return Read<CmSidrReq>(); }
  CmSidrRep sidr_rep() const { return Read<CmSidrRep>(); }

 private:
  template <typename M>
  M Read() const;

  const uint8_t* mad_ = nullptr;
};

// Header fields of a CM message that its type does not determine. The attribute
// modifier is nonzero only in enhanced connection establishment.
struct CmTransaction {
  uint64_t id = 0;
  uint32_t attribute_modifier = 0;
};

// Offset of the receiver's communication ID, four bytes, in all messages except
// REQ, SIDR_REQ and SIDR_REP (12.6, 12.7).
inline constexpr size_t kCmRemoteCommIdOffset = 28;

// Writes a whole MAD of a message of cm_messages.h; reserved fields become
// zero.
using MadBytes = std::span<uint8_t, kMadSize>;
template <typename M>
void EmitCm(const CmTransaction& transaction, const M& m, MadBytes out);

// "CM_REQ" and so on.
const char* CmAttributeName(CmAttribute attribute);
// "INVALID_SERVICE_ID" and so on; "RESERVED" for undefined numbers.
const char* CmRejectReasonName(CmRejectReason reason);

}  // namespace wire

#endif  // WIRE_CM_H_
