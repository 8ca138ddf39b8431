package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zkcontroller/zkcontroller/brokers"
	"github.com/zkcontroller/zkcontroller/kafka"
)

func brokerFaultCommand() *cobra.Command {
	var ops strings.Builder
	for _, op := range brokers.FaultOps {
		fmt.Fprintf(&ops, "  %-15s %s\n", op.Op, op.Does)
	}
	cmd := &cobra.Command{
		Use: "fault --admin HOST:PORT --broker N --op OP", Short: "Make a running emulated broker misbehave", Args: cobra.NoArgs,
		Long: "Asks the broker process whose --admin address is given. Operations:\n" + ops.String(),
	}
	f := cmd.Flags()
	admin := f.String("admin", "", "the --admin address of the broker process")
	var req brokers.FaultRequest
	broker := f.Int32("broker", -1, "the broker meant")
	f.StringVar(&req.Op, "op", "", "the operation")
	follower := f.Int32("follower", -1, "pause, resume, slow: as the broker, leading, sees this follower")
	f.StringSliceVar(&req.Partitions, "partitions", nil, "topic-partition, several with commas between; none is all")
	delay := f.Duration("delay", 0, "slow: how far behind; skew: how fast the clock is, or slow if negative")
	f.Int64Var(&req.BytesPerSecond, "bytes-per-second", 0, "slow: how much followers copy")
	peer := f.Int32("peer", -1, "cut, mend: the broker, or controller, at the other end")
	f.StringVar(&req.API, "api", "", "answer: LeaderAndIsr, UpdateMetadata or StopReplica; none is all three")
	f.StringVar(&req.Error, "error", "", "answer: Kafka's name of the code, such as KAFKA_STORAGE_ERROR")
	f.IntVar(&req.Times, "times", 0, "answer: how many requests; 0 is until clear")
	timeout := f.Duration("timeout", 30*time.Second, "give up after this")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *admin == "" || *broker < 0 || req.Op == "" {
			return usageError("give --admin, --broker and --op")
		}
		req.Broker, req.DelayMS = kafka.BrokerID(*broker), delay.Milliseconds()
		if f.Changed("follower") {
			req.Follower = new(kafka.BrokerID(*follower))
		}
		if f.Changed("peer") {
			req.Peer = new(kafka.BrokerID(*peer))
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), *timeout)
		defer cancel()
		return postFault(ctx, cmd.OutOrStdout(), *admin, req)
	}
	return cmd
}

func postFault(ctx context.Context, out io.Writer, admin string, req brokers.FaultRequest) error {
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+admin+"/fault", bytes.NewReader(body))
	if err != nil {
		return usageError("--admin %s: %w", admin, err)
	}
	resp, err := http.DefaultClient.Do(post)
	if err != nil {
		return withCode(3, fmt.Errorf("reach --admin %s: %w", admin, err))
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return withCode(3, fmt.Errorf("read the answer of --admin %s: %w", admin, err))
	}
	var got brokers.FaultResponse
	if err := json.Unmarshal(answer, &got); err != nil {
		return errors.New(strings.TrimSpace(string(answer)))
	}
	if got.Error != "" {
		return errors.New(got.Error)
	}
	if got.State == nil {
		_, err = fmt.Fprintf(out, "broker %d: %s done\n", got.Broker, got.Op)
		return err
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(got.State)
}
