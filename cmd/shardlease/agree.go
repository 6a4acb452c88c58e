package main

import (
	"context"
	"encoding/json"
	"fmt"

	"shardlease/internal/campaign"
	"shardlease/pkg/mpirun/mpi"
)

// agreeTag marks the messages of agree. The last of them is received before the campaign's first.
const agreeTag = 100

// verdict is what a rank says about its start, and what rank 0 says about that of all.
type verdict struct {
	Code int    `json:"code"` // 0 means that it can begin
	Text string `json:"text"`
}

// agree lets all ranks begin, or none. A rank that just left would make mpirun kill the others, the one that reports among them. After a
// failure every rank has the code of the lowest that failed, and only rank 0 the sentence, so that it is printed once.
func agree(ctx context.Context, comm *mpi.Comm, failure error) error {
	var v verdict
	if failure != nil {
		exit := asExit(failure)
		v = verdict{exit.code, campaign.OneLine(exit.text)}
	}
	if comm.Rank() != 0 {
		if err := sendVerdict(ctx, comm, 0, v); err != nil {
			return err
		}
		v, err := recvVerdict(ctx, comm, 0)
		if err == nil && v.Code != campaign.ExitOK {
			err = &exitError{code: v.Code}
		}
		return err
	}
	for from := 1; from < comm.Size(); from++ {
		other, err := recvVerdict(ctx, comm, from)
		if err != nil {
			return err
		}
		if v.Code == campaign.ExitOK && other.Code != campaign.ExitOK {
			v = verdict{other.Code, fmt.Sprintf("rank %d: %s", from, other.Text)}
		}
	}
	for to := 1; to < comm.Size(); to++ {
		if err := sendVerdict(ctx, comm, to, v); err != nil {
			return err
		}
	}
	if v.Code != campaign.ExitOK {
		return &exitError{v.Code, v.Text}
	}
	return nil
}

func sendVerdict(ctx context.Context, comm *mpi.Comm, to int, v verdict) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return comm.Send(ctx, to, agreeTag, data)
}

func recvVerdict(ctx context.Context, comm *mpi.Comm, from int) (v verdict, err error) {
	msg, err := comm.Recv(ctx, from, agreeTag)
	if err == nil {
		err = json.Unmarshal(msg.Data, &v)
	}
	return v, err
}
