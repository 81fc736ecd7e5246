/* Events around this thread's next launch, where Python asks for them. */
#pragma once
#include "python.h"

/* Record the first event, if this thread's next launch is timed; return it, or NULL. An idle GPU is held. */
Handle mark_begin(Handle stream);

/* Record the second event of a launch that was just made, and let a held GPU go on. */
void mark_end(Handle first, Handle stream);
