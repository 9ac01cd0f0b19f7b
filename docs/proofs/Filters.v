(* The sensitivity of a filter (dpdist/measurement/filter_measurement.py).
   z_t = sum over i <= t of h_(t - i) x_i for filters of the past, and the same around a circle. One record at step j moves z by the
   first coefficients, as many as steps follow, or by all of them turned. So no record moves z by more than the sum of squares, and the
   record of the first step by as much. *)
Require Import ZArith List Lia Psatz.
Import ListNotations.
Open Scope Z_scope.

Fixpoint square (h : list Z) : Z := match h with [] => 0 | x :: t => x * x + square t end.
Fixpoint dot (a b : list Z) : Z :=
  match a, b with x :: a', y :: b' => x * y + dot a' b' | _, _ => 0 end.

Lemma square_app a b : square (a ++ b) = square a + square b.
Proof. induction a as [|x a IH]; cbn [app square]; [ring|rewrite IH; ring]. Qed.

Lemma square_positive h : 0 <= square h.
Proof. induction h; cbn [square]; nia. Qed.

(* What a record at step j adds to z: j zeros, then the coefficients that fit. *)
Definition column (h : list Z) (j : nat) : list Z := repeat 0 j ++ firstn (length h - j) h.

Lemma square_zeros j : square (repeat 0 j) = 0.
Proof. induction j; cbn [repeat square]; lia. Qed.

Theorem past (h : list Z) (j : nat) : square (column h j) <= square h.
Proof.
  unfold column. rewrite square_app, square_zeros.
  pose proof (f_equal square (firstn_skipn (length h - j) h)) as E. rewrite square_app in E.
  pose proof (square_positive (skipn (length h - j) h)). lia.
Qed.

Theorem past_exact (h : list Z) : square (column h 0) = square h.
Proof. unfold column. cbn [repeat app]. rewrite Nat.sub_0_r, firstn_all. reflexivity. Qed.

Theorem circle (h : list Z) (j : nat) : square (skipn j h ++ firstn j h) = square h.
Proof. rewrite <- (f_equal square (firstn_skipn j h)). rewrite !square_app. ring. Qed.

(* One record in place of another: coefficients of one sign have no negative product, so that twice the square is a bound. *)
Theorem products (a b : list Z) : Forall (fun x => 0 <= x) a -> Forall (fun x => 0 <= x) b -> 0 <= dot a b.
Proof.
  intros A. revert b. induction A as [|x a X A IH]; intros [|y b] B; cbn [dot]; try lia.
  inversion B; subst. specialize (IH b H2). nia.
Qed.
