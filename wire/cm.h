// MADs of communication management: class 0x07, version 2, method Send
// (InfiniBand specification chapter 12). cm_messages.h has what they say.
//
// `CmView` is a checked view over received bytes, whose accessors need no
// further checks; `EmitCm` writes a whole MAD.

#ifndef WIRE_CM_H_
#define WIRE_CM_H_

#include <cstdint>
#include <span>

#include "wire/cm_messages.h"
#include "wire/mad.h"

namespace wire {

// Why bytes are not a CM message, in the order in which it is checked.
enum class CmParseError : uint8_t {
  kOk,
  kBadSize,           // other than kMadSize
  kOtherClass,        // base version or management class
  kBadVersion,        // class version other than 2
  kOtherMethod,       // Get, Set and so on, which CM's ClassPortInfo has
  kUnknownAttribute,  // none of CmAttribute
};

// Points into the caller's bytes, which must outlive it.
class CmView {
 public:
  // An empty view, of which only assignment is defined.
  CmView() = default;

  // Checks `mad` and sets `*out` to view it; on error `*out` is left alone.
  // What the fields say is not checked.
  static CmParseError Parse(std::span<const uint8_t> mad, CmView* out);

  MadHeader header() const { return LoadMadHeader(mad_); }
  CmAttribute attribute() const {
    return static_cast<CmAttribute>(LoadBe16(mad_ + 16));
  }
  uint64_t transaction_id() const { return LoadBe64(mad_ + 8); }
  std::span<const uint8_t, kMadSize> bytes() const {
    return std::span<const uint8_t, kMadSize>(mad_, kMadSize);
  }

  // Both of all messages but REQ (none remote) and SIDR (the request ID).
  uint32_t local_comm_id() const { return LoadBe32(mad_ + kMadHeaderSize); }
  uint32_t remote_comm_id() const {
    return LoadBe32(mad_ + kMadHeaderSize + 4);
  }

  // The message, decoded when called. Each may be called only if attribute()
  // says that it is this one. Lengths of additional information are cut to what
  // there is.
  CmReq req() const;
  CmMra mra() const;
  CmRej rej() const;
  CmRep rep() const;
  CmRtu rtu() const;
  CmDreq dreq() const;
  CmDrep drep() const;
  CmApr apr() const;
  CmSidrReq sidr_req() const;
  CmSidrRep sidr_rep() const;

 private:
  const uint8_t* mad_ = nullptr;
};

// What the header of a CM message says beside the message's type. The attribute
// modifier is zero but for enhanced connection establishment.
struct CmTransaction {
  uint64_t id = 0;
  uint32_t attribute_modifier = 0;
};

// Where the communication ID of the receiver stands in all messages but REQ,
// SIDR_REQ and SIDR_REP (12.6, 12.7), four bytes.
inline constexpr size_t kCmRemoteCommIdOffset = 28;

// Writes a whole MAD; reserved fields become zero.
using MadBytes = std::span<uint8_t, kMadSize>;
void EmitCm(const CmTransaction& transaction, const CmReq& m, MadBytes out);
void EmitCm(const CmTransaction& transaction, const CmMra& m, MadBytes out);
void EmitCm(const CmTransaction& transaction, const CmRej& m, MadBytes out);
void EmitCm(const CmTransaction& transaction, const CmRep& m, MadBytes out);
void EmitCm(const CmTransaction& transaction, const CmRtu& m, MadBytes out);
void EmitCm(const CmTransaction& transaction, const CmDreq& m, MadBytes out);
void EmitCm(const CmTransaction& transaction, const CmDrep& m, MadBytes out);
void EmitCm(const CmTransaction& transaction, const CmApr& m, MadBytes out);
void EmitCm(const CmTransaction& transaction, const CmSidrReq& m, MadBytes out);
void EmitCm(const CmTransaction& transaction, const CmSidrRep& m, MadBytes out);

// "CM_REQ" and so on.
const char* CmAttributeName(CmAttribute attribute);
// "INVALID_SERVICE_ID" and so on; "RESERVED" for numbers without a meaning.
const char* CmRejectReasonName(CmRejectReason reason);

}  // namespace wire

#endif  // WIRE_CM_H_
