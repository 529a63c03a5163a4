// The files of this process: its capture and its recording, from its first
// device to its end.
#ifndef RXE_USER_OBSERVE_PROCESS_FILES_H_
#define RXE_USER_OBSERVE_PROCESS_FILES_H_

#include "rxe_user/observe/capture.h"
#include "rxe_user/observe/tally.h"
#include "rxe_user/observe/tracer.h"
#include "transport/endpoint/packet_observer.h"

namespace rxe_user {

// The capture of RXE_USER_CAPTURE, and the recording of RXE_USER_TRACE (their
// values are the names of OpenOutputFile), which also serves the counts of
// RXE_USER_TALLY, started by the first call. Null
// without the variable, in a secure program, and if it could not be started.
// Stays the same; a child of fork has its own. Complete after exit(). Thread:
// any.
Capture* ProcessCapture();
Tracer* ProcessTracer();
// The counts of RXE_USER_TALLY, the name of a folder.
Tally* ProcessTally();
// Otherwise as ProcessTracer: errno if RXE_USER_TALLY is set and the counts
// could not be started; 0: they were, or need not be.
int TallyError();
// Shows packets to both. Null if there is neither.
transport::PacketObserver* ProcessObserver();

// Registers the handlers of fork() that guard the files, which otherwise the
// first call above does. A library whose locks are held during calls of the
// observer registers its own later: they run in reverse order.
void GuardProcessFiles();

// The recording, if ProcessTracer has been called; else null. Takes no lock.
Tracer* CurrentTracer();

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_PROCESS_FILES_H_
