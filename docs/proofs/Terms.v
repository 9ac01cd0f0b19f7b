(* The sensitivity of a grid over tables (dpdist/measurement/term_measurement.py, integer_terms.py).
   A term measures multiplier (M_1 kron M_2 ...) t of a table t, over 2^shift, rounded half up. A record moves it by a Kronecker product
   of columns, whose lengths and inner products multiply (IntegerTerm.square, least_product). Rounding moves a value by less than one
   more, and over all rows the two lengths add up: grid_of_terms charges (D + R)^2, D^2 at least the square before the rounding, R^2 at
   least the number of rounded rows. *)
Require Import ZArith List Lia Reals Lra Psatz.
Import ListNotations.
Open Scope Z_scope.

Fixpoint dot (a b : list Z) : Z :=
  match a, b with x :: a', y :: b' => x * y + dot a' b' | _, _ => 0 end.
Definition times (x : Z) (b : list Z) : list Z := map (Z.mul x) b.
Fixpoint kron (a b : list Z) : list Z :=
  match a with [] => [] | x :: a' => times x b ++ kron a' b end.

Lemma dot_times x y b d : dot (times x b) (times y d) = x * y * dot b d.
Proof.
  revert d. induction b as [|z b IH]; intros [|w d]; cbn [times map dot]; try ring.
  fold (times x b) (times y d). rewrite IH. ring.
Qed.

Lemma dot_app a b c d : length a = length c -> dot (a ++ b) (c ++ d) = dot a c + dot b d.
Proof.
  revert c. induction a as [|x a IH]; intros [|y c] E; cbn [length] in E; try discriminate; cbn [app dot]; try ring.
  rewrite IH by lia. ring.
Qed.

Theorem kronecker a b c d : length a = length c -> length b = length d ->
  dot (kron a b) (kron c d) = dot a c * dot b d.
Proof.
  revert c. induction a as [|x a IH]; intros [|y c] E F; cbn [length] in E; try discriminate; cbn [kron dot]; try ring.
  rewrite dot_app by (unfold times; rewrite !map_length; assumption). rewrite dot_times, IH by (assumption || lia). ring.
Qed.

(* Rounded half up, as IntegerTerm.rounded does. *)
Definition rounded (shift v : Z) : Z := (2 * v + 2 ^ shift) / 2 ^ (shift + 1).

Theorem rounding shift v w : 0 <= shift ->
  2 ^ shift * Z.abs (rounded shift v - rounded shift w) < Z.abs (v - w) + 2 ^ shift.
Proof.
  intros S. unfold rounded. rewrite Z.pow_add_r, Z.pow_1_r by lia.
  assert (P : 0 < 2 ^ shift) by (apply Z.pow_pos_nonneg; lia).
  set (u := 2 ^ shift) in *.
  pose proof (Z.div_mod (2 * v + u) (u * 2) ltac:(lia)). pose proof (Z.mod_pos_bound (2 * v + u) (u * 2) ltac:(lia)).
  pose proof (Z.div_mod (2 * w + u) (u * 2) ltac:(lia)). pose proof (Z.mod_pos_bound (2 * w + u) (u * 2) ltac:(lia)).
  set (p := (2 * v + u) / (u * 2)) in *. set (q := (2 * w + u) / (u * 2)) in *.
  destruct (Z.abs_spec (p - q)) as [[_ ->]|[_ ->]]; destruct (Z.abs_spec (v - w)) as [[? ->]|[? ->]]; nia.
Qed.

(* The same for rows that no rounding touches: nothing is added. All lengths are real numbers from here on. *)
Open Scope R_scope.
Fixpoint rdot (a b : list R) : R :=
  match a, b with x :: a', y :: b' => x * y + rdot a' b' | _, _ => 0 end.
Fixpoint plus (a b : list R) : list R :=
  match a, b with x :: a', y :: b' => (x + y) :: plus a' b' | _, _ => [] end.

Lemma rdot_positive a : 0 <= rdot a a.
Proof. induction a as [|x a IH]; cbn [rdot]; [lra|nra]. Qed.

Lemma one_more p q c x y : 0 <= p -> 0 <= q -> c * c <= p * q ->
  (x * y + c) * (x * y + c) <= (x * x + p) * (y * y + q).
Proof.
  intros P Q C. set (m := x * x * q + y * y * p).
  assert (M : 0 <= m) by (unfold m; nra).
  assert (S : (2 * (x * y * c)) * (2 * (x * y * c)) <= m * m).
  { assert (A : 0 <= (x * x * q - y * y * p) * (x * x * q - y * y * p)) by apply Rle_0_sqr.
    assert (B : 0 <= (x * y) * (x * y) * (p * q - c * c)) by (apply Rmult_le_pos; [apply Rle_0_sqr | lra]).
    assert (E : m * m - (2 * (x * y * c)) * (2 * (x * y * c)) =
      (x * x * q - y * y * p) * (x * x * q - y * y * p) + 4 * ((x * y) * (x * y) * (p * q - c * c))) by (unfold m; ring).
    lra. }
  assert (T : 2 * (x * y * c) <= m) by (apply Rnot_lt_le; intros L; nra). unfold m in T. nra.
Qed.

Lemma cauchy_schwarz a b : rdot a b * rdot a b <= rdot a a * rdot b b.
Proof.
  revert b. induction a as [|x a IH]; intros [|y b]; cbn [rdot]; try lra.
  apply one_more; [apply rdot_positive | apply rdot_positive | apply IH].
Qed.

Lemma rdot_plus a b : length a = length b ->
  rdot (plus a b) (plus a b) = rdot a a + 2 * rdot a b + rdot b b.
Proof.
  revert b. induction a as [|x a IH]; intros [|y b] E; cbn [length] in E; try discriminate; cbn [plus rdot]; [ring|].
  injection E as E. rewrite (IH b E). ring.
Qed.

(* moves: |difference| over 2^shift of each row before the rounding; extra: 1 for a rounded row, 0 for another. *)
Theorem with_rounding moves extra D E : length moves = length extra -> 0 <= D -> 0 <= E ->
  rdot moves moves <= D * D -> rdot extra extra <= E * E ->
  rdot (plus moves extra) (plus moves extra) <= (D + E) * (D + E).
Proof.
  intros L PD PE HD HE. rewrite rdot_plus by assumption.
  pose proof (cauchy_schwarz moves extra) as C. pose proof (rdot_positive moves). pose proof (rdot_positive extra).
  assert (X : rdot moves extra <= D * E).
  { apply Rnot_lt_le. intros F. assert (G : 0 <= D * E) by (apply Rmult_le_pos; assumption).
    assert (H1 : D * E * (D * E) < rdot moves extra * rdot moves extra) by (apply Rmult_le_0_lt_compat; assumption).
    assert (H2 : rdot moves moves * rdot extra extra <= D * D * (E * E)) by (apply Rmult_le_compat; assumption).
    lra. }
  lra.
Qed.
