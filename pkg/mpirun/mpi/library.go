//go:build mpi && cgo

package mpi

/*
#include <mpi.h>

// MPI's constants may be macros, pointers or integers: C hands them to Go.
static MPI_Comm commWorld(void) { return MPI_COMM_WORLD; }

static int initFunneled(int *provided) {
	int rc = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, provided);
	if (rc == MPI_SUCCESS) rc = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	if (rc == MPI_SUCCESS) rc = MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	return rc;
}

static int isend(void *buf, int n, int to, int tag, MPI_Comm c, MPI_Request *req) {
	return MPI_Isend(buf, n, MPI_BYTE, to, tag, c, req);
}

// match takes the first message of that source and tag out of MPI's queue; *flag = 0 when there is none.
static int match(int from, int tag, MPI_Comm c, int *flag, MPI_Message *m, int *source, int *msgTag, int *n) {
	MPI_Status s;
	int rc = MPI_Improbe(from < 0 ? MPI_ANY_SOURCE : from, tag < 0 ? MPI_ANY_TAG : tag, c, flag, m, &s);
	if (rc != MPI_SUCCESS || !*flag) return rc;
	*source = s.MPI_SOURCE;
	*msgTag = s.MPI_TAG;
	return MPI_Get_count(&s, MPI_BYTE, n);
}

static int imrecv(void *buf, int n, MPI_Message *m, MPI_Request *req) {
	return MPI_Imrecv(buf, n, MPI_BYTE, m, req);
}

static int test(MPI_Request *req, int *flag) { return MPI_Test(req, flag, MPI_STATUS_IGNORE); }

// progress lets MPI move data; what it saw is of no interest.
static void progress(MPI_Comm c) {
	int flag;
	MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, c, &flag, MPI_STATUS_IGNORE);
}
*/
import "C"

import (
	"math"
	"runtime"
	"strings"
	"unsafe"
)

// Every function of this file is called on the owner's thread only.

type commHandle = C.MPI_Comm

// Error classes that the package itself reports or its tests compare with.
var (
	classRank  = int(C.MPI_ERR_RANK)
	classTag   = int(C.MPI_ERR_TAG)
	classCount = int(C.MPI_ERR_COUNT)
)

func check(op string, code C.int) error {
	if code == C.MPI_SUCCESS {
		return nil
	}
	class := C.int(-1)
	C.MPI_Error_class(code, &class)
	var text [C.MPI_MAX_ERROR_STRING]C.char
	var n C.int
	C.MPI_Error_string(code, &text[0], &n)
	line := strings.Join(strings.Fields(C.GoStringN(&text[0], n)), " ")
	return &Error{Op: op, Class: int(class), Text: line}
}

func initialise() (world commHandle, err error) {
	provided := C.int(-1)
	if err := check("MPI_Init_thread", C.initFunneled(&provided)); err != nil {
		return world, err
	}
	if provided < C.MPI_THREAD_FUNNELED {
		return world, &Error{Op: "MPI_Init_thread", Class: int(C.MPI_ERR_OTHER),
			Text: "this MPI library supports neither MPI_THREAD_FUNNELED nor more"}
	}
	return C.commWorld(), nil
}

func finalise() error { return check("MPI_Finalize", C.MPI_Finalize()) }

// abort does not return when MPI works.
func abort(code int) { C.MPI_Abort(C.commWorld(), C.int(code)) }

func rankAndSize(c commHandle) (rank, size int, err error) {
	var r, s C.int
	if err := check("MPI_Comm_rank", C.MPI_Comm_rank(c, &r)); err != nil {
		return 0, 0, err
	}
	err = check("MPI_Comm_size", C.MPI_Comm_size(c, &s))
	return int(r), int(s), err
}

// split blocks until all ranks of c have called it.
func split(c commHandle, color, key int) (part commHandle, err error) {
	err = check("MPI_Comm_split", C.MPI_Comm_split(c, C.int(color), C.int(key), &part))
	return part, err
}

// dup blocks until all ranks of c have called it.
func dup(c commHandle) (copy commHandle, err error) {
	err = check("MPI_Comm_dup", C.MPI_Comm_dup(c, &copy))
	return copy, err
}

func progress(c commHandle) { C.progress(c) }

// fitsC refuses numbers that C's int would change silently into valid ones.
func fitsC(op string, class int, what string, n int) error {
	if n < math.MinInt32 || n > math.MaxInt32 {
		return &Error{Op: op, Class: class, Text: what + " exceeds 2^31-1"}
	}
	return nil
}

// A transfer is an MPI request. Its buffer stays pinned until test reports its end.
type transfer struct {
	req C.MPI_Request
	pin runtime.Pinner
}

// pointer pins buf for as long as MPI keeps its address.
func (t *transfer) pointer(buf []byte) unsafe.Pointer {
	if len(buf) == 0 {
		return nil
	}
	t.pin.Pin(&buf[0])
	return unsafe.Pointer(&buf[0])
}

// test reports whether the request has ended; an error ends it too.
func (t *transfer) test() (ended bool, err error) {
	var flag C.int
	err = check("MPI_Test", C.test(&t.req, &flag))
	if ended = err != nil || flag != 0; ended {
		t.pin.Unpin()
	}
	return ended, err
}

func startSend(c commHandle, to, tag int, data []byte) (*transfer, error) {
	t := new(transfer)
	err := check("MPI_Isend", C.isend(t.pointer(data), C.int(len(data)), C.int(to), C.int(tag), c, &t.req))
	if err != nil {
		t.pin.Unpin()
		return nil, err
	}
	return t, nil
}

func startBarrier(c commHandle) (*transfer, error) {
	t := new(transfer)
	return t, check("MPI_Ibarrier", C.MPI_Ibarrier(c, &t.req))
}

// startRecv takes a message that has arrived and starts its transfer, or returns nil.
func startRecv(c commHandle, from, tag int) (*Message, *transfer, error) {
	var flag, source, msgTag, n C.int
	var m C.MPI_Message
	err := check("MPI_Improbe", C.match(C.int(from), C.int(tag), c, &flag, &m, &source, &msgTag, &n))
	if err != nil || flag == 0 {
		return nil, nil, err
	}
	if n < 0 {
		return nil, nil, &Error{Op: "MPI_Get_count", Class: classCount, Text: "a message of 2^31 bytes or more was received and is lost"}
	}
	msg := &Message{From: int(source), Tag: int(msgTag), Data: make([]byte, int(n))}
	t := new(transfer)
	if err := check("MPI_Imrecv", C.imrecv(t.pointer(msg.Data), n, &m, &t.req)); err != nil {
		t.pin.Unpin()
		return nil, nil, err
	}
	return msg, t, nil
}
