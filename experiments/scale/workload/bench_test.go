package main

import (
	"reflect"
	"testing"
	"time"

	"shardlease/experiments/scale/raw"
)

func TestSyncsThatOverlapAreCountedOnce(t *testing.T) {
	begun := time.Now()
	at := func(ns int) time.Time { return begun.Add(time.Duration(ns)) }
	got := inTurn(begun, at(100), []interval{
		{true, at(70), at(90)}, {false, at(10), at(40)}, {false, at(20), at(60)}, {false, at(30), at(35)},
	})
	want := raw.Call{After: 10, Syncs: []raw.Sync{
		{Before: 10, Took: 30, Whole: 30}, {Before: 0, Took: 20, Whole: 40}, {Before: 0, Took: 0, Whole: 5}, {Directory: true, Before: 10, Took: 20, Whole: 20},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
