// The files of this process: its capture, its recording and its counts, from
// its first device to its end.
#ifndef RXE_USER_OBSERVE_PROCESS_FILES_H_
#define RXE_USER_OBSERVE_PROCESS_FILES_H_

#include "rxe_user/observe/capture.h"
#include "rxe_user/observe/tally.h"
#include "rxe_user/observe/tracer.h"
#include "transport/endpoint/packet_observer.h"

namespace rxe_user {

// The capture of RXE_USER_CAPTURE, and the recording of RXE_USER_TRACE (the
// values are names for OpenOutputFile). The tracer also collects the counts of
// RXE_USER_TALLY. Started by the first call. Null without the variable, in a
// secure program, or if it could not be started. The result does not change; a
// child of fork() has its own. Complete after exit(). Thread: any.
Capture* ProcessCapture();
Tracer* ProcessTracer();
// The counts of RXE_USER_TALLY, the name of a folder.
Tally* ProcessTally();
// errno if RXE_USER_TALLY is set and the counts could not be started; 0 if they
// were started or need not be. Otherwise as ProcessTracer.
int TallyError();
// Shows packets to the capture and the recording. Null if there is neither.
transport::PacketObserver* ProcessObserver();

// Registers the fork() handlers that guard the files, which otherwise the first
// call above does. A library whose locks are held while it calls the observer
// must register its own handlers later: handlers run in reverse order.
void GuardProcessFiles();

// The recording, if ProcessTracer has been called; else null. Takes no lock.
Tracer* CurrentTracer();

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_PROCESS_FILES_H_
